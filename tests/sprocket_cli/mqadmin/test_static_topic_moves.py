"""A static topic on two brokers, each a process of its own: its queues move while clients send and consume."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from tests.sprocket_cli.programs import BROKER_FLAGS, await_masters, run, server

QUEUES: Final = 4
KEYS: Final = 8


@dataclass(frozen=True)
class Pair:
    """The name server of two brokers, and the folder for the files of mqadmin."""

    namesrv: str
    folder: Path

    async def mqadmin(self, *arguments: str) -> str:
        done = await asyncio.to_thread(run, self.folder, *arguments, "-n", self.namesrv, program="mqadmin")
        remove_plans(done.stdout)
        assert done.returncode == 0, done.stderr
        return done.stdout


def remove_plans(printed: str) -> None:
    """Remove the files that a command names: they are in the machine's temporary directory."""
    for plan in re.findall(r"is written to file (\S+)", printed):
        Path(plan).unlink()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folders = [tmp_path_factory.mktemp(name) for name in ("namesrv", "a", "b", "tool")]
    with server(folders[0], "namesrv", "--set", "listenPort=0") as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        flags = ("broker", "-n", namesrv, *BROKER_FLAGS, "--set")
        with (
            server(folders[1], *flags, "brokerName=broker-a") as a,
            server(folders[2], *flags, "brokerName=broker-b") as b,
        ):
            await_masters(namesrv, 2)
            yield Pair(namesrv, folders[3])
            assert a.stop() == b.stop() == 0


@dataclass
class Traffic:
    """What was acknowledged, by key; and what was received, in order, with its place."""

    topic: str
    sent: dict[str, list[int]] = field(default_factory=dict)
    received: list[tuple[int, int, str, int]] = field(default_factory=list)  # queue, offset, key, number
    is_over: bool = False

    async def send(self, producer: Producer, key: str) -> None:
        acknowledged = self.sent.setdefault(key, [])
        number = 0
        while not self.is_over:
            await producer.send(Message(self.topic, b"%d" % number, keys=[key]), sharding_key=key, timeout_s=30)
            acknowledged.append(number)
            number += 1
            await asyncio.sleep(0.002)

    async def consume(self, consumer: Consumer) -> None:
        async for message in consumer:
            (key,) = message.keys
            self.received.append((message.queue.queue_id, message.queue_offset, key, int(message.body)))
            await consumer.ack(message)

    async def are_sent(self, count: int) -> None:
        """Wait until `count` more messages of each key are acknowledged."""
        goals = {key: len(numbers) + count for key, numbers in self.sent.items()}
        while any(len(self.sent[key]) < goal for key, goal in goals.items()):
            await asyncio.sleep(0.01)

    async def are_received(self) -> None:
        wanted = {(key, number) for key, numbers in self.sent.items() for number in numbers}
        while not wanted <= {(key, number) for _, _, key, number in self.received}:
            await asyncio.sleep(0.02)

    def check(self) -> None:
        """Offsets rise in each queue, and numbers in each key, which stays in its queue."""
        last_offset: dict[int, int] = {}
        last_number: dict[str, int] = {}
        queue_of: dict[str, int] = {}
        for queue, offset, key, number in self.received:
            assert offset > last_offset.get(queue, -1), (queue, offset)
            assert number > last_number.get(key, -1), (key, number)
            assert queue_of.setdefault(key, queue) == queue
            last_offset[queue], last_number[key] = offset, number


async def leaders(admin: AdminClient, topic: str) -> set[str]:
    mappings = (await admin.topic_route(topic)).topic_queue_mapping_by_broker or {}
    return {name for name, info in mappings.items() if info.curr_id_map}


@pytest.mark.timeout(300)
async def test_queues_move_under_traffic_and_nothing_is_lost_or_out_of_order(pair: Pair) -> None:
    topic = "Moving"
    made = await pair.mqadmin("updateStaticTopic", "-t", topic, "-qn", str(QUEUES), "-b", "broker-a")
    assert "The new mapping data is written to file" in made
    traffic = Traffic(topic)
    async with (
        AdminClient(pair.namesrv) as admin,
        Producer("movers", pair.namesrv) as producer,
        Consumer("readers", [topic], pair.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        assert await leaders(admin, topic) == {"broker-a"}
        async with asyncio.TaskGroup() as group:
            consuming = group.create_task(traffic.consume(consumer))
            senders = [group.create_task(traffic.send(producer, f"key-{number}")) for number in range(KEYS)]
            await asyncio.sleep(0)
            await traffic.are_sent(20)
            for targets in ("broker-b", "broker-a,broker-b", "broker-a"):
                await pair.mqadmin("remappingStaticTopic", "-t", topic, "-b", targets)
                await traffic.are_sent(20)
                assert await leaders(admin, topic) == set(targets.split(","))
            traffic.is_over = True
            await asyncio.gather(*senders)
            await traffic.are_received()
            consuming.cancel()
        traffic.check()
        # Each queue has moved twice at least, to a block of offsets of its own.
        assert {offset // 10_000 for _, offset, _, _ in traffic.received} >= {0, 1, 2}
        stats = (await admin.topic_stats(topic)).offset_table
        logical = {queue.queue_id: stats[queue] for queue in stats if queue.broker_name == LOGICAL_BROKER}
        assert set(logical) == set(range(QUEUES))
        for queue, offset, _, _ in traffic.received:
            assert logical[queue].min_offset <= offset < logical[queue].max_offset
        progress = (await admin.consume_stats("readers", topic)).offset_table
        while any(each.consumer_offset < each.broker_offset for each in progress.values()):
            await asyncio.sleep(0.1)
            progress = (await admin.consume_stats("readers", topic)).offset_table
        assert {queue.queue_id for queue in progress} == set(logical)
    shown = await pair.mqadmin("topicStatus", "-t", topic)
    assert shown.count(LOGICAL_BROKER) == QUEUES


@pytest.mark.timeout(120)
async def test_messages_are_found_by_key_and_new_queues_are_used(pair: Pair) -> None:
    topic = "Growing"
    await pair.mqadmin("updateStaticTopic", "-t", topic, "-qn", "2", "-b", "broker-a")
    await pair.mqadmin("updateStaticTopic", "-t", topic, "-qn", "6", "-b", "broker-b")
    async with Producer("growers", pair.namesrv) as producer:
        sent = [await producer.send(Message(topic, b"%d" % number, keys=["k"])) for number in range(12)]
        assert {result.queue.queue_id for result in sent} == set(range(6))
        assert sorted(result.queue_offset for result in sent) == [0] * 6 + [1] * 6
    found = await pair.mqadmin("queryMsgByKey", "-t", topic, "-k", "k")
    assert sum(sent_one.message_id in found for sent_one in sent) == 12
    await pair.mqadmin("remappingStaticTopic", "-t", topic, "-b", "broker-b")
    printed = await pair.mqadmin("printMsg", "-t", topic)
    assert printed.count("MSGID: ") == 12
