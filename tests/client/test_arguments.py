"""Every public argument has one meaning, and one that is wrong is named at once, before anything is done."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sprocket
from sprocket import (
    AdminClient,
    AdminError,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AnswerUnreadable,
    ClientClosed,
    ClientError,
    ClientSettings,
    Consumer,
    ConsumeSettings,
    DeadLetterFilter,
    Deduplicator,
    IllegalArgument,
    KeyWindow,
    Message,
    MessageQueue,
    OrderlyConsumer,
    OrderlySettings,
    PopSettings,
    Producer,
    PullSettings,
    ReconsumeLater,
    Redrive,
    SendFailed,
    SendSettings,
    SimpleConsumer,
    SqlFilter,
    TransactionProducer,
    sync,
)
from sprocket.client.connection.event_loop_thread import EventLoopThread
from sprocket.common.errors import ConfigError
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import NoHeader
from sprocket.remoting.tls.settings import TlsSettings
from tests.client.fake_cluster import FakeNameServer, FakeServer, route, topic_data

NS = "127.0.0.1:1"
NAIVE = datetime(2030, 1, 1)


def message(**changes: Any) -> Message:
    return Message(changes.pop("topic", "T"), changes.pop("body", b"x"), **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": None}, "topic is None; pass the topic's name"),
        ({"topic": b"T"}, "topic is a bytes"),
        ({"topic": "a b"}, "character that is not allowed"),
        ({"body": "text"}, r"body is a str; pass bytes, as in text\.encode\(\)"),
        ({"body": None}, "body is None; pass bytes"),
        ({"body": 5}, "body is an int"),
        ({"tags": None}, "tags is None"),
        ({"tags": ["A"]}, "tags is a list"),
        ({"tags": "a | b"}, "a message has one tag"),
        ({"tags": "a||b"}, "a message has one tag"),
        ({"tags": " a"}, "begins or ends with a blank"),
        ({"tags": "a\x01"}, "0x01 or 0x02"),
        ({"tags": "\ud800"}, "no Unicode text"),
        ({"keys": "a b"}, r"key 'a b' holds a blank, .* pass keys=\['a', 'b'\]"),
        ({"keys": ["a b"]}, r"key 'a b' holds a blank, .* pass keys=\['a', 'b'\]"),
        ({"keys": ["a\tb"]}, "holds a blank"),
        ({"keys": [1]}, "an entry of keys is an int"),
        ({"keys": None}, "keys is None"),
        ({"keys": 7}, "keys is an int"),
        ({"keys": b"ab"}, "keys is a bytes"),
        ({"properties": [("a", "b")]}, "properties is a list; pass a dict"),
        ({"properties": {"a": 1}}, "property 'a' is an int"),
        ({"properties": {1: "a"}}, "the name of a property is an int"),
        ({"properties": {"TAGS": "x"}}, "'TAGS' is reserved"),
        ({"properties": {"a": ""}}, "not blank"),
        ({"delay_level": 99}, "delay_level is 99, but is from 0 to 18"),
        ({"delay_level": -1}, "delay_level is -1"),
        ({"delay_level": True}, "delay_level is a bool"),
        ({"delay": "5"}, "delay is a str; pass a timedelta or seconds"),
        ({"delay": float("nan")}, "delay is nan s"),
        ({"delay": -0.1}, "delay is -0.1 s"),
        ({"deliver_at": NAIVE}, "deliver_at 2030-01-01T00:00:00 has no time zone"),
        ({"deliver_at": 1_700_000_000}, "multiply seconds by 1000"),
        ({"deliver_at": 1_700_000_000.5}, "deliver_at is a float"),
        ({"delay": 1, "deliver_at": datetime.now(UTC)}, "one of delay_level, delay and deliver_at"),
        ({"unique_key": 7}, "unique_key is an int"),
        ({"flag": 1 << 31}, "flag is 2147483648"),
        ({"flag": "1"}, "flag is a str"),
        ({"wait_store_ok": 1}, "wait_store_ok is an int; pass True or False"),
    ],
)
def test_message_names_the_argument_that_is_wrong(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(sprocket.IllegalMessage, match=reason):
        message(**changes)


def test_message_takes_what_means_the_same() -> None:
    assert message(body=bytearray(b"ab")).body == message(body=memoryview(b"ab")).body == b"ab"
    assert message(keys="order-7").keys == message(keys=["order-7"]).keys == "order-7"
    assert message(keys=("a", "b")).keys == "a b"
    assert message(delay=5).delay_ms == message(delay=timedelta(seconds=5)).delay_ms == 5000
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert message(deliver_at=at).deliver_at_ms == message(deliver_at=1_893_456_000_000).deliver_at_ms == 1893456000000
    assert message(tags="Größe").tags == "Größe"


def consumer(**changes: Any) -> Consumer:
    return Consumer(changes.pop("group", "g"), changes.pop("topics", "T"), changes.pop("namesrv", NS), **changes)


def simple(**changes: Any) -> SimpleConsumer:
    return SimpleConsumer(changes.pop("group", "g"), changes.pop("topics", "T"), changes.pop("namesrv", NS), **changes)


def producer(**changes: Any) -> Producer:
    return Producer(changes.pop("group", "g"), changes.pop("namesrv", NS), **changes)


def admin(name_servers: Any = NS, **changes: Any) -> AdminClient:
    return AdminClient(name_servers, **changes)


@pytest.mark.parametrize(
    ("make", "changes", "reason"),
    [
        (consumer, {"topics": {"T": "a | b"}}, r"'\|' separates nothing in 'a \| b'; write \|\| between tags"),
        (consumer, {"topics": {"T": ["a", "b"]}}, "the expression of topic T is a list; pass"),
        (consumer, {"topics": {"T": None}}, "the expression of topic T is None"),
        (consumer, {"topics": [1]}, "an entry of topics is an int"),
        (consumer, {"topics": 5}, "topics is an int"),
        (consumer, {"topics": b"T"}, "topics is a bytes"),
        (consumer, {"group": 5}, "group is an int"),
        (consumer, {"model": "CLUSTERING"}, "model is a str; pass one of MessageModel"),
        (consumer, {"consume_from": "first"}, "consume_from is a str; pass ConsumeFrom"),
        (consumer, {"consume_from": NAIVE}, "consume_from 2030-01-01T00:00:00 has no time zone"),
        (consumer, {"strategy": "averagely"}, "strategy.allocate is None"),
        (consumer, {"settings": SendSettings()}, "settings is a SendSettings; pass a ConsumeSettings"),
        (consumer, {"namesrv": ""}, "no name server given: pass namesrv="),
        (consumer, {"namesrv": "nowhere"}, "namesrv: 'nowhere' is not host:port"),
        (consumer, {"namesrv": "kafka://here:9092"}, "namesrv: 'kafka://here:9092' has a scheme"),
        (consumer, {"namesrv": 9876}, "namesrv is an int"),
        (consumer, {"client": ClientSettings(namesrv=NS)}, "namesrv and client are both given"),
        (OrderlyConsumer, {"group": "g", "namesrv": NS, "settings": ConsumeSettings()}, "pass an OrderlySettings"),
        (simple, {"consume_from": datetime.now(UTC)}, "consume_from is a datetime"),
        (simple, {"ordered": "no"}, "ordered is a str"),
        (simple, {"settings": ConsumeSettings()}, "settings is a ConsumeSettings; pass a PopSettings"),
        (simple, {"client": ClientSettings(namesrv=NS)}, "both given"),
        (producer, {"group": None}, "group is None"),
        (producer, {"settings": 3}, "settings is an int"),
        (producer, {"client": NS, "namesrv": ""}, "client is a str; pass a ClientSettings"),
        (producer, {"client": ClientSettings(namesrv=NS)}, "both given"),
        (TransactionProducer, {"group": "g", "namesrv": NS, "checker": None}, "checker is None; pass a function"),
        (
            TransactionProducer,
            {"group": "g", "namesrv": NS, "checker": print, "check_threads": 0},
            "check_threads is 0",
        ),
        (admin, {"name_servers": []}, "no name server given"),
        (admin, {"name_servers": "nowhere"}, "not host:port"),
        (admin, {"timeout_s": 0}, "timeout_s is 0"),
        (admin, {"credentials": "key"}, "credentials is a str; pass a Credentials"),
        (ClientSettings, {"namesrv": NS, "api_timeout_s": 0}, "api_timeout_s is 0"),
        (ClientSettings, {"namesrv": NS, "instance_name": 5}, "instance_name is an int"),
        (SendSettings, {"send_msg_timeout_s": 0}, "send_msg_timeout_s is 0"),
        (SendSettings, {"retry_times_when_send_failed": -1}, "retry_times_when_send_failed is -1"),
        (SendSettings, {"compress_type": "zlib"}, "compress_type is a str; pass a Compression"),
        (SendSettings, {"compress_level": 99}, "compress_level is 99, but is from 0 to 9"),
        (SendSettings, {"max_outstanding": 0}, "max_outstanding is 0"),
        (SendSettings, {"max_message_size": 1 << 24}, "max_message_size is 16777216"),
        (SendSettings, {"auto_batch": "yes"}, "auto_batch is a str"),
        (ConsumeSettings, {"consume_timeout_s": 0}, "consume_timeout_s is 0"),
        (ConsumeSettings, {"pull": ConsumeSettings()}, "pull is a ConsumeSettings"),
        (ConsumeSettings, {"local_offset_store_dir": "/tmp"}, "local_offset_store_dir is a str; pass a Path"),
        (PullSettings, {"pull_batch_size": 0}, "pull_batch_size is 0, but is from 1 to 1024"),
        (OrderlySettings, {"suspend_current_queue_time_s": 31}, "from 0.01 s to 30 s"),
        (PopSettings, {"poll_time_s": -1}, "poll_time_s is -1 s"),
        (PopSettings, {"renew_limit_s": 0}, "renew_limit_s is 0"),
        (SqlFilter, {"expression": None}, "expression is None"),
        (ReconsumeLater, {"delay_level": 19}, "delay_level is 19, but is from -1 to 18"),
        (ReconsumeLater, {"suspend_s": "1"}, "suspend_s is a str"),
        (KeyWindow, {"window_s": 0}, "window_s is 0"),
        (KeyWindow, {"max_keys": 0}, "max_keys is 0"),
        (Deduplicator, {"key": 1}, "key is an int"),
        (Deduplicator().once, {"handler": None}, "handler is None"),
        (AllocateMessageQueueConsistentHash, {"virtual_nodes": -1}, "virtual_nodes is -1"),
        (DeadLetterFilter, {"tags": 5}, "tags is an int"),
        (DeadLetterFilter, {"since_ms": "now"}, "since_ms is a str"),
        (Redrive, {"admin": NS, "group": "g"}, "admin is a str; pass an AdminClient"),
        (sync.Admin, {"namesrv": ""}, "no name server given"),
        (sync.Consumer, {"group": "g", "topics": {"T": "a|b"}, "namesrv": NS}, "separates nothing"),
        (sync.TransactionProducer, {"group": "g", "namesrv": NS, "checker": 5}, "checker is an int"),
    ],
)
def test_constructor_names_the_argument_that_is_wrong(
    make: Callable[..., object], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(IllegalArgument, match=reason) as refused:
        make(**changes)
    assert isinstance(refused.value, ClientError)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, TypeError)


@pytest.mark.parametrize(
    "make",
    [
        lambda proxy: Producer("g", proxy),
        lambda proxy: Producer("g", client=ClientSettings(namesrv=proxy)),
        lambda proxy: TransactionProducer("g", proxy, checker=lambda _: sprocket.TransactionState.UNKNOWN),
        lambda proxy: Consumer("g", "T", proxy),
        lambda proxy: OrderlyConsumer("g", "T", proxy),
        lambda proxy: SimpleConsumer("g", "T", proxy),
        lambda proxy: AdminClient(proxy),
        lambda proxy: sync.Producer("g", proxy),
        lambda proxy: sync.Consumer("g", "T", proxy),
        lambda proxy: sync.Admin(proxy),
    ],
)
def test_a_proxy_is_no_name_server(make: Callable[[str], object]) -> None:
    with pytest.raises(IllegalArgument, match=r"'grpc://host:8081' is a proxy.*use sprocket\.connect\('grpc://host"):
        make("grpc://host:8081")


def test_one_name_is_a_list_of_one() -> None:
    assert set(consumer(topics="Clicks")._subscriptions) == {"Clicks", "%RETRY%g"}
    assert set(consumer(topics=["Clicks", "Views"])._subscriptions) == {"Clicks", "Views", "%RETRY%g"}
    assert set(simple(topics="Clicks")._subscriptions) == {"Clicks"}
    assert DeadLetterFilter(tags="card").tags == frozenset({"card"})
    queues = [MessageQueue("T", name, 0) for name in ("east@a", "w@b")]
    assert AllocateMessageQueueByMachineRoom("east").allocate("c", queues, ["c"]) == queues[:1]


@pytest.mark.parametrize("given", ["a:1;b:2", "a:1, b:2", ["a:1", "b:2"], ("a:1;b:2",)])
def test_name_servers_are_one_str_or_a_list(given: Any) -> None:
    assert admin(given).name_servers == ["a:1", "b:2"]
    assert str(producer(namesrv=given)._instance.name_servers) == "a:1;b:2"
    assert str(consumer(namesrv="", client=ClientSettings(namesrv=given))._instance.name_servers) == "a:1;b:2"
    sync.Admin(given)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda p: p.send("text"), "message is of type str; pass a Message"),
        (lambda p: p.send(message(), timeout_s=0), "timeout_s is 0"),
        (lambda p: p.send(message(), timeout_s="1"), "timeout_s is a str"),
        (lambda p: p.send(message(), sharding_key=7), r"sharding_key is an int; pass a str, as in str\(7\)"),
        (lambda p: p.send(message(), queue=3), "queue is an int; pass a MessageQueue"),
        (lambda p: p.send(message(), queue=MessageQueue("U", "a", 0)), "queue is one of topic U"),
        (lambda p: p.send(message(), queue=MessageQueue("T", "a", 0), sharding_key="k"), "pass one of them"),
        (lambda p: p.request(message(), timeout_s=0), "timeout_s is 0"),
        (lambda p: p.send_oneway(message(), sharding_key=7), "sharding_key"),
        (lambda p: p.send(Message("T", b"", delay=1), sharding_key="k" * 1025), "carries its sharding key, .* 1024"),
        (lambda p: p.send_batch(["text"]), "message is of type str"),
        (lambda p: p.send_batch([message()], timeout_s=0), "timeout_s is 0"),
        (lambda p: anext(p.send_many([message()], window=0)), "window is 0"),
        (lambda p: anext(p.send_many(["text"])), "message is of type str"),
        (lambda p: p.recall(5), "handle is an int"),
        (lambda p: p.queues(None), "topic is None"),
    ],
)
async def test_producer_names_the_argument_that_is_wrong(call: Callable[[Producer], Any], reason: str) -> None:
    async with producer() as sender:
        with pytest.raises(IllegalArgument, match=reason):
            await call(sender)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda c: c.receive(0), "max_messages is 0"),
        (lambda c: c.receive(wait_s=-1), "wait_s is -1 s"),
        (lambda c: c.ack(5), "message is an int; pass a message that this consumer gave"),
        (lambda c: c.nack(5), "message is an int"),
        (lambda c: c.run(None), "handler is None"),
        (lambda c: c.run(print, concurrency=0), "concurrency is 0"),
        (lambda c: c.run_batches("h"), "handler is a str"),
        (lambda c: c.subscribe(5), "topic is an int"),
        (lambda c: c.subscribe("T", "a|b"), "separates nothing"),
        (lambda c: c.reply(5, b"x"), "message is an int"),
    ],
)
async def test_consumer_names_the_argument_that_is_wrong(call: Callable[[Consumer], Any], reason: str) -> None:
    async with consumer() as receiver:
        with pytest.raises(IllegalArgument, match=reason):
            await call(receiver)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda c: c.receive(0), "max_messages is 0, but is from 1 to 32"),
        (lambda c: c.receive(invisible=0), "invisible is 0"),
        (lambda c: c.receive(wait_s="1"), "wait_s is a str"),
        (lambda c: c.ack(5), "popped is an int"),
        (lambda c: c.ack_all([5]), "popped is an int"),
        (lambda c: c.extend(5), "popped is an int"),
        (lambda c: c.nack(5), "popped is an int"),
        (lambda c: c.run(None), "handler is None"),
    ],
)
async def test_simple_consumer_names_the_argument_that_is_wrong(
    call: Callable[[SimpleConsumer], Any], reason: str
) -> None:
    async with simple() as receiver:
        with pytest.raises(IllegalArgument, match=reason):
            await call(receiver)


async def test_transaction_names_the_argument_that_is_wrong() -> None:
    async with TransactionProducer("g", NS, checker=print) as sender:  # type: ignore[arg-type]
        with pytest.raises(IllegalArgument, match="local is None"):
            await sender.send_in_transaction(message(), None)  # type: ignore[arg-type]
        with pytest.raises(IllegalArgument, match="check_immunity_s is -1"):
            await sender.send_in_transaction(message(), print, check_immunity_s=-1)  # type: ignore[arg-type]


def test_blocking_classes_check_the_same() -> None:
    with sync.Producer("g", NS) as sender:
        with pytest.raises(IllegalArgument, match="timeout_s is 0"):
            sender.send(message(), timeout_s=0)
        with pytest.raises(IllegalArgument, match="window is 0"):
            next(sender.send_many([message()], window=0))
    with sync.Consumer("g", "T", NS) as receiver:
        with pytest.raises(IllegalArgument, match="max_messages is 0"):
            receiver.receive(0)
        with pytest.raises(IllegalArgument, match="message is an int"):
            receiver.ack(5)  # type: ignore[arg-type]
        with pytest.raises(IllegalArgument, match="concurrency is 0"):
            receiver.run(print, concurrency=0)


def test_names_of_the_package_are_listed() -> None:
    assert set(sprocket.__all__) <= set(dir(sprocket))


async def test_files_of_tls_that_cannot_be_used_are_a_client_error(tmp_path: Path) -> None:
    tls = TlsSettings.for_client(tmp_path / "missing.pem")
    for made in (Producer("g", client=ClientSettings(namesrv=NS, tls=tls)), AdminClient(NS, tls=tls)):
        with pytest.raises(ClientError, match=r"missing\.pem") as refused:
            async with made:
                pass
        assert isinstance(refused.value, ConfigError)


async def test_answers_that_cannot_be_read_are_client_errors() -> None:
    """A name server's routes, and a broker's pops and offsets."""

    def garbage(request: Request[Any]) -> Response:
        return Response(body=b"{broken", header={"popTime": "soon", "offset": "far", "queueOffset": "x"})

    codes = (RequestCode.POP_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.GET_BROKER_RUNTIME_INFO)
    answers = [route(code, NoHeader, garbage) for code in codes]
    route_garbage = route(RequestCode.GET_ROUTEINFO_BY_TOPIC, NoHeader, garbage)
    async with FakeServer([route_garbage]) as broken, FakeNameServer() as names, FakeServer(answers) as broker:
        async with Producer("g", broken.address) as sender:
            with pytest.raises(AnswerUnreadable, match="the route of topic T is refused: body: no JSON"):
                await sender.send(message())
        names.topics["T"] = topic_data(("a", broker.address))
        async with Producer("g", names.address, settings=SendSettings(send_msg_timeout_s=0.3)) as sender:
            with pytest.raises(SendFailed, match="answered with no number"):
                await sender.send(message())
        async with SimpleConsumer("g", "T", names.address) as popping:
            with pytest.raises(AnswerUnreadable, match="the answer's header is no PopMessageResponseHeader"):
                await popping.receive(wait_s=0)
        async with AdminClient(names.address) as asking:
            with pytest.raises(AdminError, match="the answer is no KVTable"):
                await asking.broker_runtime_info(broker.address)


def test_a_blocking_call_that_is_cut_off_by_a_close_is_a_client_error() -> None:
    loop = EventLoopThread()
    loop.acquire()
    waiting = threading.Event()

    async def work() -> None:
        waiting.set()
        await asyncio.Event().wait()

    outcome: list[BaseException] = []

    def call() -> None:
        try:
            loop.call(work())
        except BaseException as error:
            outcome.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    waiting.wait()
    loop.release()
    caller.join()
    assert [type(error) for error in outcome] == [ClientClosed]


def test_every_error_of_the_client_is_a_client_error() -> None:
    """What is public, whatever its base beside that."""
    errors = [getattr(sprocket, name) for name in sprocket.__all__]
    raised = [kind for kind in errors if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [kind for kind in raised if not issubclass(kind, ClientError)] == [
        sprocket.ReconsumeLater,
        sprocket.SprocketError,
    ]
