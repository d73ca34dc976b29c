"""The blocking client: threads, errors, interrupts, and nothing left behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sprocket import (
    AdminError,
    ClientError,
    ConsumeFrom,
    IllegalMessage,
    Message,
    MessageQueue,
    NameServerUnreachable,
    ReceivedMessage,
    SendFailed,
    TransactionState,
    sync,
)
from sprocket.client.connection.event_loop_thread import EventLoopThread, shared_loop
from sprocket.testing import Broker
from tests.client.pull.test_process_queue import message as received


def consumer_of(broker: Broker, topic: str, group: str = "g") -> sync.Consumer:
    return sync.Consumer(f"{group}-{topic}", [topic], broker.namesrv, consume_from=ConsumeFrom.FIRST)


class LeftSource:
    """Where a message lies that another member may have by now; notes what is skipped."""

    queue = MessageQueue("TopicTest", "broker-a", 0)
    consumer = None
    is_dropped = True
    is_waiting = False

    def __init__(self) -> None:
        self.skipped: list[ReceivedMessage] = []

    def take(self, message: ReceivedMessage, now: float, /) -> None: ...

    def skip(self, message: ReceivedMessage, /) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.skipped.append(message)

    def is_pending(self, message: ReceivedMessage, /) -> bool:
        return True

    def extend(self, message: ReceivedMessage, counts_from: float, /) -> None: ...

    def acknowledge(self, message: ReceivedMessage, /) -> bool:
        return False


def test_what_another_member_may_have_is_skipped_in_the_loop(shared_broker: Broker, topic: str) -> None:
    source, left = LeftSource(), received(0)
    left.source = source
    with consumer_of(shared_broker, topic) as consumer:
        consumer._ready.append(left)
        assert consumer.receive(wait_s=0.1) == []
    assert source.skipped == [left]


def test_what_is_sent_is_received_and_no_thread_is_left(shared_broker: Broker, topic: str) -> None:
    before = threading.active_count()
    with sync.Producer("g", shared_broker.namesrv) as producer:
        assert shared_loop.is_running
        results = list(producer.send_many((Message(topic, b"%d" % number) for number in range(100)), window=16))
        results.append(producer.send_batch([Message(topic, b"100"), Message(topic, b"101")]))
        producer.send_oneway(Message(topic, b"102"))
        assert len(producer.queues(topic)) == 4
    assert len(results) == 101
    with consumer_of(shared_broker, topic) as consumer:
        bodies = set()
        while len(bodies) < 103:
            for message in consumer:  # what came along with the last one of an iteration comes in the next
                bodies.add(int(message.body))
                consumer.ack(message)
                if not len(bodies) % 10 or len(bodies) == 103:
                    break
        assert consumer.receive(wait_s=0.05) == []
    assert bodies == set(range(103))
    with consumer_of(shared_broker, topic) as again:
        assert again.receive(wait_s=0.5) == []  # all of them were committed
    assert not shared_loop.is_running
    assert threading.active_count() == before


def test_errors_are_those_of_the_asyncio_client(shared_broker: Broker, topic: str) -> None:
    with sync.Producer("g", shared_broker.namesrv) as producer:
        with pytest.raises(IllegalMessage, match="empty"):
            producer.send(Message(topic, b""))
        with pytest.raises(ClientError, match="not open"):
            sync.Producer("other", shared_broker.namesrv).send(Message(topic, b"x"))
    with pytest.raises(ClientError, match="not open"):
        producer.send(Message(topic, b"x"))
    with pytest.raises(ValueError, match="no name server"):
        sync.Producer("g", "")
    begun = time.monotonic()
    with sync.Producer("g", "127.0.0.1:1") as nowhere, pytest.raises((NameServerUnreachable, SendFailed)):
        nowhere.send(Message(topic, b"x"), timeout_s=0.5)
    assert time.monotonic() - begun < 30


def test_threads_share_one_producer(shared_broker: Broker, topic: str) -> None:
    with sync.Producer("g", shared_broker.namesrv) as producer, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: producer.send(Message(topic, b"%d" % number)), range(200)))
    assert len({(result.queue, result.queue_offset) for result in results}) == 200


def test_handlers_run_in_threads_and_may_use_the_client(shared_broker: Broker, topic: str) -> None:
    seen: list[bytes] = []
    names = set()
    with (
        sync.Producer("g", shared_broker.namesrv) as producer,
        sync.Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
    ):

        def handler(message: ReceivedMessage) -> None:
            names.add(threading.current_thread().name)
            if message.body == b"ask":
                consumer.reply(message, b"answer")
            seen.append(message.body)
            if len(seen) == 10:
                ended.set()

        ended = threading.Event()
        runner = threading.Thread(target=consumer.run, args=(handler,), kwargs={"concurrency": 4})
        runner.start()
        for _ in range(9):
            producer.send(Message(topic, b"x"))
        assert producer.request(Message(topic, b"ask"), timeout_s=20).body == b"answer"
        assert ended.wait(20)
    runner.join()
    assert len(seen) == 10
    assert all(name.startswith("sprocket-handler") for name in names)
    assert not shared_loop.is_running


def test_orderly_consumer(shared_broker: Broker, topic: str) -> None:
    with sync.Producer("g", shared_broker.namesrv) as producer:
        for number in range(20):
            producer.send(Message(topic, b"%d" % number), sharding_key="one")
    seen: list[int] = []
    ended = threading.Event()

    def handler(message: ReceivedMessage) -> None:
        seen.append(int(message.body))
        if len(seen) == 20:
            ended.set()

    consumer = sync.OrderlyConsumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST)
    with consumer:
        runner = threading.Thread(target=consumer.run, args=(handler,))
        runner.start()
        assert ended.wait(20)
    runner.join()
    assert seen == list(range(20))


def test_transaction(shared_broker: Broker, topic: str) -> None:
    def local(message: Message, transaction_id: str) -> TransactionState:
        assert not threading.current_thread().name.startswith("sprocket-client")
        return TransactionState.COMMIT if message.body == b"yes" else TransactionState.ROLLBACK

    with sync.TransactionProducer(
        f"tg-{topic}", shared_broker.namesrv, checker=lambda message: TransactionState.UNKNOWN
    ) as producer:
        assert producer.send_in_transaction(Message(topic, b"no"), local).state is TransactionState.ROLLBACK
        assert producer.send_in_transaction(Message(topic, b"yes"), local).state is TransactionState.COMMIT
    with consumer_of(shared_broker, topic) as consumer:
        assert [message.body for message in consumer.receive(10, wait_s=20)] == [b"yes"]


def test_admin(shared_broker: Broker, topic: str) -> None:
    with sync.Admin(shared_broker.namesrv) as admin:
        assert topic in admin(lambda aio: aio.topic_list())
        with pytest.raises(ClientError, match="not known"):
            admin(lambda aio: aio.broker_addresses("no such cluster", masters_only=True))


def test_a_client_tells_the_id_that_operators_see(shared_broker: Broker, topic: str) -> None:
    with sync.Producer("g", shared_broker.namesrv) as producer:
        producer.send(Message(topic, b"x"))
        with consumer_of(shared_broker, topic) as consumer, sync.Admin(shared_broker.namesrv) as admin:
            assert consumer.receive(wait_s=10)
            seen = None
            while seen is None:
                with contextlib.suppress(AdminError):  # the name server does not know the group's retry topic yet
                    seen = admin(lambda aio: aio.consumer_connection(f"g-{topic}")).connection_set
            assert {one.client_id for one in seen} == {consumer.client_id} != {producer.client_id}
    simple = sync.SimpleConsumer("g", topic, shared_broker.namesrv)
    with pytest.raises(ClientError, match="not open"):
        _ = simple.client_id
    with simple:
        assert simple.client_id


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where a shell started the tests in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_interrupt_ends_the_call_that_waits(shared_broker: Broker, topic: str) -> None:
    with consumer_of(shared_broker, topic) as consumer, sync.Producer("g", shared_broker.namesrv) as producer:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in consumer:
                pass
        timer.join()
        # Both go on working.
        producer.send(Message(topic, b"after"))
        assert [message.body for message in consumer.receive(wait_s=20)] == [b"after"]
    assert not shared_loop.is_running


FORKING = """
import os, sys
from sprocket import Message, sync

with sync.Producer("parent", sys.argv[1]) as producer:
    producer.send(Message(sys.argv[2], b"parent"))
    child = os.fork()
    if not child:
        try:
            try:
                producer.send(Message(sys.argv[2], b"never"))
            except Exception as error:
                print(type(error).__name__, flush=True)
            with sync.Producer("child", sys.argv[1]) as own:
                own.send(Message(sys.argv[2], b"child"))
            print("sent", flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    producer.send(Message(sys.argv[2], b"parent again"))
print("done")
"""


def test_forked_process_opens_a_client_of_its_own(shared_broker: Broker, topic: str) -> None:
    command = [sys.executable, "-c", FORKING, shared_broker.namesrv, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.splitlines() == ["ClientError", "sent", "done"], ended.stderr
    with consumer_of(shared_broker, topic) as consumer:
        bodies = set()
        while len(bodies) < 3:
            bodies |= {message.body for message in consumer.receive(8, wait_s=5)}
    assert bodies == {b"parent", b"child", b"parent again"}


def test_a_handler_may_begin_a_client_while_the_last_one_ends() -> None:
    shared = EventLoopThread()
    shared.acquire()
    is_working, may_go_on = threading.Event(), threading.Event()

    def handler() -> None:
        is_working.set()
        may_go_on.wait(10)
        shared.acquire()

    async def begin() -> None:
        asyncio.get_running_loop().run_in_executor(None, handler)

    shared.call(begin())
    is_working.wait(10)
    ending = threading.Thread(target=shared.release)
    ending.start()
    while shared.is_running:
        threading.Event().wait(0.001)
    may_go_on.set()
    ending.join(10)
    assert not ending.is_alive()
    assert shared.is_running, "the handler's own"
    shared.release()
    assert not shared.is_running


ENDING_AT_WORK = """
import asyncio, atexit, time

def look():
    before = len(turns)
    time.sleep(0.1)
    print(len(turns) > 100, len(turns) == before)

atexit.register(look)  # runs after those of the client
from sprocket.client.connection.event_loop_thread import shared_loop
turns = []

async def work():
    while True:
        turns.append(0)
        await asyncio.sleep(0)

shared_loop.acquire()
shared_loop.submit(work())
while len(turns) < 200:
    time.sleep(0.001)
"""


def test_a_program_that_closes_nothing_ends_without_a_running_thread() -> None:
    command = [sys.executable, "-c", ENDING_AT_WORK]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True True\n", "")


OLDER_HOOKS = """
import asyncio, atexit, os, threading, time

def outcome(what, *arguments):
    try:
        return what(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def older():
    waiting.join()
    print(ended)
    for work in (shared_loop.call, shared_loop.submit):
        print(outcome(work, asyncio.sleep(0)))
    print(outcome(shared_loop.soon, print))
    shared_loop.release()
    print("released")
    if os.fork():
        os.wait()
        return
    print(outcome(shared_loop.call, asyncio.sleep(0)))
    shared_loop.acquire()
    print(outcome(shared_loop.call, asyncio.sleep(0, "of the child")))
    shared_loop.release()

atexit.register(older)  # runs after those of the client
from sprocket.client.connection.event_loop_thread import shared_loop

ended = []
shared_loop.acquire()
waiting = threading.Thread(target=lambda: ended.append(outcome(shared_loop.call, asyncio.sleep(600))), daemon=True)
waiting.start()
shared_loop.submit(asyncio.sleep(600))
# Python waits for it before the hooks run.
late = threading.Thread(target=lambda: print(outcome(shared_loop.call, asyncio.sleep(0.5, "of a thread"))))
late.start()
"""


def test_no_hook_waits_for_the_loop_of_a_process_that_ends() -> None:
    """A hook that was registered before Sprocket was imported runs after the loop was halted."""
    command = [sys.executable, "-u", "-c", OLDER_HOOKS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    closed = (
        "ClientClosed: the client is closed, because the process ends; close it in a function that you give to "
        "atexit.register after importing sprocket"
    )
    assert ended.stdout.splitlines() == [
        "of a thread",
        "['ClientClosed: the client was closed during the call']",
        *[closed] * 3,
        "released",
        "ClientError: the client is not open; use it inside `with`",
        "of the child",
    ]
    assert (ended.returncode, ended.stderr) == (0, "")


OPEN_AT_THE_END = """
import sys, threading
from sprocket import Message
from sprocket.sync import connect

mq = connect(sys.argv[1])
mq.start()
producer, consumer = mq.producer(), mq.simple_consumer("left-open", sys.argv[2])
producer.start()
consumer.start()
producer.send(Message(sys.argv[2], b"-"))
print(len(consumer.receive(4, wait_s=60)))
threading.Thread(target=consumer.receive, args=(4,), kwargs={"wait_s": 60}, daemon=True).start()
"""


def test_clients_that_are_open_at_the_end_of_a_program_log_nothing(shared_broker: Broker, topic: str) -> None:
    command = [sys.executable, "-c", OPEN_AT_THE_END, shared_broker.namesrv, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
