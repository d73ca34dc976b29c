"""The broker for tests itself: start, stop, crash, restart, failure to start."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sprocket import ClientError, ConsumeFrom, Consumer, Message, Producer
from sprocket.testing import Broker, BrokerNotStarted


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_topic_is_checked_before_the_broker_is_asked() -> None:
    for topic, queues in (("a b", 4), (None, 4), ("T", 0), ("T", "4")):
        with pytest.raises(ClientError):
            Broker().create_topic(topic, queues)  # type: ignore[arg-type]


def test_own_directory_is_removed_and_process_ends() -> None:
    with Broker() as broker:
        directory, pid = broker.directory, broker.pid
        assert is_running(pid)
        assert broker.store.is_dir()
    assert not is_running(pid)
    assert not directory.exists()
    with pytest.raises(BrokerNotStarted):
        _ = broker.pid


def test_messages_outlive_a_restart_on_the_same_ports(tmp_path: Path) -> None:
    async def send() -> None:
        async with Producer("g", broker.namesrv) as producer:
            await producer.send(Message("T", b"kept"))

    async def receive() -> bytes:
        async with Consumer("c", ["T"], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
            return (await anext(consumer)).body

    with Broker(tmp_path) as broker:
        asyncio.run(send())
        before = broker.namesrv, broker.address
        broker.kill()
        broker.start()
        assert (broker.namesrv, broker.address) == before
        assert asyncio.run(receive()) == b"kept"


def test_properties_reach_the_broker() -> None:
    with Broker(properties={"autoCreateTopicEnable": "false"}) as broker:

        async def send() -> None:
            async with Producer("g", broker.namesrv) as producer:
                await producer.send(Message("Nowhere", b"x"))

        with pytest.raises(Exception, match="topic Nowhere"):
            asyncio.run(send())
        broker.create_topic("Nowhere", 1)
        asyncio.run(send())


def test_broker_that_cannot_start_says_why() -> None:
    broker = Broker(properties={"listenPort": "no number"})
    with pytest.raises(BrokerNotStarted, match="listenPort"):
        broker.start()


def test_broker_ends_when_the_test_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from sprocket.testing import Broker\n"
        "with Broker(Path(sys.argv[1])) as broker: print(broker.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        os.kill(parent.pid, signal.SIGKILL)
    while is_running(pid):  # the test's own timeout ends what never comes
        os.sched_yield()
