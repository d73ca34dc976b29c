"""A cluster of Apache RocketMQ and one of ours copy each other, while replicators are killed.

At Apache's brokers copies arrive at least once, and in order but for those that come again; at ours exactly once.
"""

import asyncio
import json
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

import sprocket
from replicate.cluster import Cluster
from replicate.protocol.read_ahead import AheadBudget
from replicate.queue_source import QueueSource
from sprocket import ConsumeFrom, Message, MessageQueue, ReceivedMessage
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.clock import SystemClock
from sprocket.common.processes.child_process import ChildProcess
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.testing import Broker
from sprocket_cli.main import main
from tests.compat import maven
from tests.compat.cluster import ApacheCluster
from tests.replicate.clusters import config_text, replicator

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(500)]

TOPIC, QUEUES, COUNT = "Orders", 2, 3000
# Groups consume at one side, and move to the other one.
WORK, DONE = {"apache": "Work-apache", "ours": "Work-ours"}, 20
ALL = 2 * (COUNT + 1)
_LIMIT_S = 120.0


async def test_apache_is_source_and_target(tmp_path: Path) -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    with ApacheCluster(tmp_path / "apache") as apache, Broker() as ours:
        namesrvs = {"apache": apache.name_server_address, "ours": ours.namesrv}
        text = config_text(namesrvs, ["apache>ours", "ours>apache"], f'topics = ["{TOPIC}", "Work-*"]')
        for namesrv in namesrvs.values():
            await create_topic(namesrv)
        for origin, topic in WORK.items():
            await create_topic(namesrvs[origin], topic)
        for origin, namesrv in namesrvs.items():
            await send(namesrv, origin)
        process = replicator(tmp_path / "replicator", text)
        try:
            work = [consume_some(namesrvs[origin], topic) for origin, topic in WORK.items()]
            await asyncio.gather(kill_often(process, namesrvs), *work)
            await is_equal(namesrvs)
            await moves(namesrvs["ours"], WORK["apache"], once=True)
            await moves(namesrvs["apache"], WORK["ours"], once=False)
        finally:
            process.end(signal.SIGTERM)
        await asyncio.to_thread(says_how_often, tmp_path / "replicator" / "replication.toml")


async def create_topic(namesrv: str, topic: str = TOPIC) -> None:
    async with sprocket.connect(namesrv) as mq, asyncio.timeout(_LIMIT_S):
        for address in (await mq.admin.cluster_info()).masters().values():
            await mq.admin.create_topic(address, TopicConfig(topic, QUEUES, QUEUES))
        while True:
            with suppress(sprocket.ClientError):
                await mq.producer().queues(topic)
                return
            await asyncio.sleep(0.1)


async def send(namesrv: str, origin: str) -> None:
    """Send to both queues: single messages, which are compressed, batches, and a message with a delay."""
    async with sprocket.connect(namesrv) as mq:
        producer = mq.producer()
        queues = await producer.queues(TOPIC)
        for number in range(0, COUNT, 100):
            queue = queues[number // 100 % QUEUES]
            batch = [
                Message(TOPIC, b"%d" % each, keys=f"k{each}", tags=origin, properties={"n": "ü"})
                for each in range(number + 1, number + 100)
            ]
            await producer.send(Message(TOPIC, b"%d " % number * 2000, tags=origin), queue=queue)
            await producer.send_batch(batch, queue=queue)
        await producer.send(Message(TOPIC, b"late", tags=origin, delay_level=1))


async def consume_some(namesrv: str, topic: str) -> None:
    """Send to one queue, and acknowledge the first messages."""
    async with sprocket.connect(namesrv) as mq, asyncio.timeout(_LIMIT_S):
        producer = mq.producer()
        queue = (await producer.queues(topic))[0]
        for number in range(2 * DONE):
            await producer.send(Message(topic, b"%d" % number), queue=queue)
            await asyncio.sleep(0.05)  # so that replicators are killed meanwhile
        async for message in mq.consumer(f"of-{topic}", topic, consume_from=ConsumeFrom.FIRST):
            await message.ack()
            if message.body == b"%d" % (DONE - 1):
                return


async def kill_often(process: ChildProcess, namesrvs: dict[str, str]) -> None:
    """SIGKILL the replicator in the middle of copying, until both sides have all."""
    deadline, kills, counts = time.monotonic() + _LIMIT_S, 0, [0]
    process.launch()
    while time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        counts = [await count(namesrv) for namesrv in namesrvs.values()]
        if min(counts) >= ALL:
            return
        if kills < 4 and max(counts) > ALL // 2:
            process.end(signal.SIGKILL)
            process.launch()
            kills += 1
    raise AssertionError(f"only {counts} of {ALL} are there: {process.tail()}")


async def count(namesrv: str) -> int:
    async with sprocket.connect(namesrv) as mq:
        table = (await mq.admin.topic_stats(TOPIC)).offset_table
    return sum(extent.max_offset for extent in table.values())


async def contents(namesrv: str, topic: str = TOPIC) -> dict[int, list[ReceivedMessage]]:
    """Return the messages of each queue."""
    found: dict[int, list[ReceivedMessage]] = {}
    async with Cluster("c", ClientSettings(namesrv=namesrv), SystemClock()) as cluster, asyncio.timeout(_LIMIT_S):
        for place in (await cluster.admin.topic_stats(topic)).offset_table:
            queue = MessageQueue(topic, place.broker_name, place.queue_id)
            source = QueueSource(
                cluster.instance, queue, AheadBudget(1 << 27, 1 << 26, lambda: 1), asyncio.Semaphore(64)
            )
            begin, end = await source.bounds()
            source.seek(begin)
            messages = found[place.queue_id] = []
            while len(messages) < end - begin:
                some = list(await source.messages())
                messages += some
                source.drop(len(some))
            source.close()
    return found


def told(messages: list[ReceivedMessage], origin: str) -> list[tuple[object, ...]]:
    """Return what an application sees of each message of `origin`, each once, in order of the first time."""
    return list(
        dict.fromkeys(
            (one.message_id, one.body, tuple(one.keys), one.properties.get("n")) for one in messages
            if one.tags == origin
        )
    )  # fmt: skip


async def is_equal(namesrvs: dict[str, str]) -> None:
    """Both have all messages, in order; ours has each once."""
    apache, ours = [await contents(namesrv) for namesrv in namesrvs.values()]
    assert sum(map(len, ours.values())) == ALL
    for origin in namesrvs:
        assert sum(len(told(messages, origin)) for messages in ours.values()) == COUNT + 1
        for queue_id, messages in ours.items():
            assert told(messages, origin) == told(apache[queue_id], origin)


async def moves(namesrv: str, topic: str, *, once: bool) -> None:
    """A group that consumed at the other side goes on here exactly where it stopped; copies may be doubled, or not."""
    wanted = [b"%d" % number for number in range(DONE, 2 * DONE)]
    async with sprocket.connect(namesrv) as mq, asyncio.timeout(_LIMIT_S):
        while not await is_translated(mq, namesrv, topic):
            await asyncio.sleep(0.5)
        bodies: list[bytes] = []
        async for message in mq.consumer(f"of-{topic}", topic, consume_from=ConsumeFrom.FIRST):
            await message.ack()
            bodies.append(message.body)
            if message.body == wanted[-1]:
                break
    assert (bodies if once else [body for body in dict.fromkeys(bodies) if body in wanted]) == wanted


async def is_translated(mq: sprocket.Connection, namesrv: str, topic: str) -> bool:
    """Whether the group's offset is where a copy of its next message lies."""
    with suppress(sprocket.ClientError):
        offsets = (await mq.admin.consume_stats(f"of-{topic}", topic)).offset_table
        for place, offset in offsets.items():
            found = (await contents(namesrv, topic))[place.queue_id]
            if any(one.queue_offset == offset.consumer_offset and one.body == b"%d" % DONE for one in found):
                return True
    return False


def says_how_often(path: Path) -> None:
    """`sprocket replicate status` names the end where copies may be doubled."""
    done = CliRunner().invoke(main, ["replicate", "status", "--config", str(path), "--json"])
    assert done.exit_code == 0, done.output
    to_ours, to_apache = json.loads(done.stdout)
    assert {queue["isAtLeastOnce"] for queue in to_ours["queues"] if queue["topic"] == TOPIC} == {False}
    assert {queue["isAtLeastOnce"] for queue in to_apache["queues"]} == {True}
