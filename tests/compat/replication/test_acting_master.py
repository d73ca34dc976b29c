"""A master is killed while everything waits in it; it goes on by its slave and another master, and comes back."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sprocket import (
    ConsumeFrom,
    Message,
    MessageQueue,
    OrderlyConsumer,
    PoppedMessage,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
    SprocketError,
    TransactionProducer,
    TransactionState,
)
from tests.compat import wire
from tests.compat.cluster import ApacheCluster, Cluster, Server, SprocketCluster

pytestmark = pytest.mark.timeout(300)

TOPIC, JOBS, NEWS = "Steps", "Jobs", "News"
ORDERLY, WORKERS, PRODUCERS = "orderly", "workers", "producers"
_LIMIT_S = 100.0
_QUERY_CONSUMER_OFFSET, _GET_ALL_CONSUMER_OFFSET, _GET_ALL_DELAY_OFFSET = 14, 43, 45
_GET_BROKER_RUNTIME_INFO = 28
_BROKER = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerHeartbeatInterval": "300",
    "brokerNotActiveTimeoutMillis": "2000",
    "syncBrokerMemberGroupPeriod": "300",
    "totalReplicas": "2",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "slaveReadEnable": "true",
}
_NAME_SERVER = "\nsupportActingMaster=true\nnotifyMinBrokerIdChanged=true\nscanNotActiveBrokerInterval=500\n"


def act(cluster: Cluster) -> Cluster:
    """Its name servers show a slave that acts as the master, and say so at once."""
    for server in cluster.name_servers:
        with (server.directory / "namesrv.conf").open("a") as configuration:
            configuration.write(_NAME_SERVER)
    return cluster


class Mixed(SprocketCluster):
    """Servers of RocketMQ in the place of some of ours."""


def mixed(directory: Path, java: str) -> Cluster:
    """A cluster of ours with the named servers of RocketMQ in the place of some."""
    # Longer than RocketMQ gathers op messages: it would ask about what has just ended.
    properties = _BROKER | ({"transactionCheckInterval": "5000"} if java else {})
    kind = Mixed if java else SprocketCluster
    cluster = kind(directory / "sprocket", brokers=2, slaves=1, properties=properties)
    if java:
        apache = ApacheCluster(directory / "apache", brokers=0)
        parts: dict[str, list[Server]] = {
            "namesrv": cluster.name_servers, "master": cluster.brokers[:1], "slave": cluster.slaves,
            "other": cluster.brokers[1:],
        }  # fmt: skip
        for name in java.split("+"):
            for server in parts[name]:
                make = apache.name_server_command if name == "namesrv" else apache.broker_command
                server.command = make(Path(server.command[-1]))
                server.environment = apache.environment(server.directory)
    return act(cluster)


async def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, f"not in {_LIMIT_S:g} s: {what}"
        await asyncio.sleep(0.1)


def body_of(server: Server, code: int) -> bytes:
    return wire.invoke(server.address, code).body


def committed(server: Server, queue_id: int, group: str = ORDERLY, topic: str = TOPIC) -> int:
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
    return int(wire.invoke(server.address, _QUERY_CONSUMER_OFFSET, fields).fields.get("offset", -1))


def log_end(server: Server) -> bytes:
    info = body_of(server, _GET_BROKER_RUNTIME_INFO)
    return info.partition(b'"commitLogMaxOffset":"')[2].partition(b'"')[0]


class Story:
    """What is sent and seen."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namesrv = cluster.name_server_address
        self.seen: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.popped: list[PoppedMessage] = []
        self.is_killed = False

    async def handle(self, message: ReceivedMessage) -> None:
        await self.gate.wait()
        self.seen.append(message.body)

    def outcome(self, message: ReceivedMessage) -> TransactionState:
        """Answer no check of the transaction while the master lives."""
        return TransactionState.COMMIT if self.is_killed else TransactionState.UNKNOWN

    def steps(self) -> list[bytes]:
        """The steps that were seen, in the order in which they were seen first."""
        return list(dict.fromkeys(body for body in self.seen if body.startswith(b"step")))

    async def send(self, producer: Producer, first: int, count: int) -> None:
        queue = MessageQueue(TOPIC, "broker-a", 0)
        for number in range(first, first + count):
            await producer.send(Message(TOPIC, b"step %02d" % number), queue=queue)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[SimpleConsumer]:
        async with (
            OrderlyConsumer(ORDERLY, [TOPIC], self.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
            SimpleConsumer(WORKERS, [JOBS], self.namesrv, consume_from=ConsumeFrom.FIRST) as workers,
        ):
            running = asyncio.create_task(consumer.run(self.handle))
            yield workers
            self.gate.set()
        await asyncio.wait_for(running, 30)

    async def play(self) -> None:
        (master, _), (slave,) = self.cluster.brokers, self.cluster.slaves
        async with (
            TransactionProducer(PRODUCERS, self.namesrv, checker=self.outcome) as producer,
            self.reading() as workers,
        ):
            await self.send(producer, 0, 10)
            await until(lambda: len(self.steps()) == 10, "all steps are seen")
            # A slave of RocketMQ asks for topics and offsets once a minute.
            await until(lambda: committed(master, 0) == committed(slave, 0) == 10, "the slave has the group's offset")
            await self.leave_waiting(producer, workers)
            await until(lambda: log_end(master) == log_end(slave), "the slave has all of the log")
            if not isinstance(self.cluster, Mixed):
                # Offsets travel every 200 ms: without this one the slave would deliver the job again.
                await until(lambda: committed(slave, 0, WORKERS, JOBS) == 1, "the slave knows what was popped")
                # The last that the master does: a topic that is newer than its last look at what changed.
                await asyncio.to_thread(wire.create_topic, master.address, NEWS, 1)
                await producer.send(Message(NEWS, b"news"), queue=MessageQueue(NEWS, "broker-a", 0))
                await until(lambda: log_end(master) == log_end(slave), "the slave has the news")
            master.kill()
            self.is_killed = True
            self.gate.set()
            await self.goes_on(workers)
            await until(lambda: committed(slave, 0) == 20, "the slave has the group's offset")
            await asyncio.to_thread(master.start)
            await asyncio.to_thread(self.cluster.await_registered, master)
            assert committed(master, 0) == 20
            await self.send_again(producer)
            await asyncio.sleep(3)  # what comes twice would come now
        self.check(workers)

    async def leave_waiting(self, producer: TransactionProducer, workers: SimpleConsumer) -> None:
        """Of each kind something that waits in the master."""
        queue = MessageQueue(TOPIC, "broker-a", 1)
        await producer.send(Message(JOBS, b"job"), queue=MessageQueue(JOBS, "broker-a", 0))
        deadline = time.monotonic() + _LIMIT_S
        while not self.popped:
            self.popped = await workers.receive(1, invisible=8, wait_s=1)
            assert time.monotonic() < deadline
        self.gate.clear()
        await self.send(producer, 10, 10)
        await producer.send(Message(TOPIC, b"delayed", delay_level=2), queue=queue)
        await producer.send(Message(TOPIC, b"timed", delay=6), queue=queue)
        half = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": "0C" * 16}
        fields = {
            "a": PRODUCERS, "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": "4", "g": str(time.time_ns() // 10**6),
            "h": "0", "i": "".join(f"{name}\x01{value}\x02" for name, value in half.items()), "j": "0", "k": "false",
            "m": "false",
        }  # fmt: skip
        address = self.cluster.brokers[0].address
        answer = await asyncio.to_thread(wire.invoke, address, wire.SEND_MESSAGE_V2, fields, b"committed")
        assert answer.code == 0, answer.remark

    async def goes_on(self, workers: SimpleConsumer) -> None:
        """All of it comes, though the master is dead."""
        await until(lambda: len(self.steps()) == 20, "the steps that the slave has are seen")
        await until(lambda: {b"delayed", b"timed", b"committed"} <= set(self.seen), "what was due comes")
        deadline = time.monotonic() + _LIMIT_S
        while True:
            assert time.monotonic() < deadline, "what was popped does not come again"
            again = await workers.receive(1, invisible=60, wait_s=1)
            if again:
                # The slave of a RocketMQ master knows a minute later what was popped, and may deliver it again.
                assert again[0].body == b"job"
                assert again[0].reconsume_times == 1 or isinstance(self.cluster, Mixed)
                await workers.ack(again[0])
                break
        if not isinstance(self.cluster, Mixed):
            await self.reads_news()

    async def reads_news(self) -> None:
        """A group that is new joins at the slave that acts, of a topic as new."""
        async with SimpleConsumer("late", [NEWS], self.namesrv, consume_from=ConsumeFrom.FIRST) as late:
            deadline = time.monotonic() + _LIMIT_S
            while not (news := await late.receive(1, wait_s=1)):
                assert time.monotonic() < deadline, "the new group gets nothing"
            assert [each.body for each in news] == [b"news"]
            await late.ack(news[0])

    async def send_again(self, producer: Producer) -> None:
        """The master takes messages again, and its queue goes on."""
        await until(lambda: self.routes_master(), "clients are told of the master")
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                await self.send(producer, 20, 1)
                break
            except SprocketError:
                assert time.monotonic() < deadline, "the master takes no message"
                await asyncio.sleep(0.5)
        await until(lambda: b"step 20" in self.seen, "the master's new message is seen")

    def routes_master(self) -> bool:
        (server,), master = self.cluster.name_servers, self.cluster.brokers[0]
        return (
            master.address.encode() in wire.invoke(server.address, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).body
        )

    def check(self, workers: SimpleConsumer) -> None:
        """Nothing is lost, in order, and nothing of it came twice after the master was back."""
        assert self.steps() == [b"step %02d" % number for number in range(21)]
        others = [body for body in self.seen if not body.startswith(b"step")]
        assert sorted(others) == [b"committed", b"delayed", b"timed"]
        assert committed(self.cluster.brokers[0], 0) == 21


@pytest.mark.parametrize(
    "servers",
    [
        "",
        *(
            pytest.param(java, marks=[pytest.mark.java, pytest.mark.slow])
            for java in ("namesrv", "master", "slave", "other")
        ),
    ],
)
async def test_everything_goes_on_through_the_slave_and_back(tmp_path: Path, servers: str) -> None:
    cluster = mixed(tmp_path, servers)
    with cluster:
        await asyncio.to_thread(cluster.start_slaves)
        for broker in cluster.brokers:
            for topic in (TOPIC, JOBS):
                wire.create_topic(broker.address, topic, 2)
        await asyncio.sleep(1.0 if servers else 0.0)
        await Story(cluster).play()
