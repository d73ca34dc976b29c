"""One turn of a broker on a directory: checks what the turn before left, and adds to it with real traffic."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sprocket import Consumer, Message, Producer
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.rebalance.start_offset import ConsumeFrom
from tests.compat import wire
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster

TOPIC, DELAYED, GROUP = "Ledger", "Reminders", "Bookkeepers"
QUEUES, MESSAGES = 4, 300
HALF_TOPIC, WHEEL_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"
# Level 1 passes while a turn lasts, level 2 outlives the change of hands, level 3 outlives the test.
DELAYS = "1s 8s 2h"
# Of a directory that is kept: whatever was delayed is due when it is opened.
SHORT_DELAYS = {"messageDelayLevel": "1s 8s 20s"}
_OFFSETS_SAVED_S = 1.5
# RocketMQ saves offsets for the first time 10 s after its start, whatever the interval is.
_APACHE_OFFSETS_SAVED_S = 11.5
# A pull carries the offset of its time; RocketMQ's broker may take it after the commit that follows it.
_PULLS_SETTLED_S = 0.3
_QUERY_MESSAGE = 12
_WAIT_S = 60.0


class ApacheBroker(ApacheCluster):
    """Apache RocketMQ's broker below our name server: one Java process less to wait for."""

    def name_server_command(self, configuration: Path) -> Sequence[str]:
        return SprocketCluster.name_server_command(self, configuration)  # type: ignore[arg-type]


@dataclass
class Ledger:
    """What was sent and what came back over all turns."""

    sent: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    places: list[list[int]] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)
    due: list[str] = field(default_factory=list)
    came_due: list[str] = field(default_factory=list)
    due_offsets: list[int] = field(default_factory=list)
    # Committed offset of each queue; and the end of each queue, as (topic, queue, offset).
    committed: list[list[int]] = field(default_factory=list)
    ends: list[tuple[str, int, int]] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        return cls(**json.loads(text))


def properties(store: Path) -> dict[str, str]:
    return {
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": str(256 * 1024),
        "mappedFileSizeConsumeQueue": "4000",
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
        "messageDelayLevel": DELAYS,
        "flushConsumerOffsetInterval": "500",
        "flushDelayOffsetInterval": "500",
        "flushDiskType": "SYNC_FLUSH",
        "fileReservedTime": "876000",
    }


async def send_round(address: str, turn: int, ledger: Ledger) -> None:
    """Plain, keyed, tagged and batched messages over all queues; delayed ones last."""
    async with Producer(group="Clerks", namesrv=address) as producer:
        for number in range(MESSAGES):
            text = f"{turn}-{number}"
            await producer.send(
                Message(TOPIC, text.encode().ljust(900, b"."), tags=f"tag{number % 3}", keys=f"key-{text}")
            )
            ledger.sent.append(text)
        batch = [f"{turn}-batch-{number}" for number in range(5)]
        await producer.send_batch([Message(TOPIC, text.encode(), keys=f"key-{text}") for text in batch])
        ledger.sent += batch
        for level in (1, 2, 3):
            text = f"{turn}-level-{level}"
            await producer.send(Message(DELAYED, text.encode(), delay_level=level))
            if level < 3:
                ledger.due.append(text)


async def consume(address: str, ledger: Ledger, *, leave: int) -> None:
    """Consume until `leave` of what was sent are left; of each turn's first message a second helping is asked for."""
    async with Consumer(GROUP, [TOPIC], address, consume_from=ConsumeFrom.FIRST) as consumer:
        deadline = time.monotonic() + _WAIT_S
        while len(ledger.received) < len(ledger.sent) - leave:
            message = await asyncio.wait_for(anext(consumer), max(0.1, deadline - time.monotonic()))
            text = message.body.decode().rstrip(".")
            if text in ledger.given_back:
                ledger.given_back.remove(text)
                ledger.received.append(text)
                await consumer.ack(message)
            elif text.endswith("-0") and "batch" not in text:
                ledger.given_back.append(text)
                await consumer.nack(message, 2)
            else:
                ledger.received.append(text)
                ledger.places.append([message.queue.queue_id, message.queue_offset])
                await consumer.ack(message)
        await asyncio.sleep(_PULLS_SETTLED_S)


async def consume_due(address: str, ledger: Ledger, count: int) -> None:
    """Take `count` delayed messages that are due."""
    async with Consumer("Sleepers", [DELAYED], address, consume_from=ConsumeFrom.FIRST) as consumer:
        for _ in range(count):
            message = await asyncio.wait_for(anext(consumer), _WAIT_S)
            ledger.came_due.append(message.body.decode())
            ledger.due_offsets.append(message.queue_offset)
            await consumer.ack(message)
        await asyncio.sleep(_PULLS_SETTLED_S)


async def note_offsets(cluster: Cluster, ledger: Ledger) -> None:
    async with AdminClient([cluster.name_server_address]) as admin:
        stats = await admin.consume_stats(GROUP, TOPIC)
        ledger.committed = sorted([queue.queue_id, each.consumer_offset] for queue, each in stats.offset_table.items())
    ledger.ends = []
    for topic in (TOPIC, HALF_TOPIC, WHEEL_TOPIC):
        for queue_id in range(QUEUES if topic == TOPIC else 1):
            ledger.ends.append((topic, queue_id, max_offset(cluster, topic, queue_id)))


def max_offset(cluster: Cluster, topic: str, queue_id: int) -> int:
    fields = {"topic": topic, "queueId": str(queue_id), "committed": "true"}
    return int(wire.invoke(cluster.brokers[0].address, wire.GET_MAX_OFFSET, fields).fields["offset"])


def query_by_key(cluster: Cluster, key: str) -> bytes:
    fields = {"topic": TOPIC, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    answer = wire.invoke(cluster.brokers[0].address, _QUERY_MESSAGE, fields)
    assert answer.code == 0, f"{key}: {answer.remark}"
    return answer.body


def send_half_and_timed(cluster: Cluster, *, is_timed: bool) -> None:
    """A transaction that nobody ends, and a message for the timer wheel: only the files of these kinds are ours yet."""
    kinds = [(4, "TRAN_MSG\x01true\x02PGROUP\x01Clerks\x02"), (0, "TIMER_DELAY_SEC\x013600\x02")]
    for sys_flag, extra in kinds if is_timed else kinds[:1]:
        fields = {
            "a": "Clerks", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": str(sys_flag),
            "g": str(int(time.time() * 1000)), "h": "0", "i": f"UNIQ_KEY\x01U{sys_flag}\x02{extra}",
            "j": "0", "k": "false", "l": "16", "m": "false",
        }  # fmt: skip
        answer = wire.invoke(cluster.brokers[0].address, wire.SEND_MESSAGE_V2, fields, b"half or timed")
        assert answer.code == 0, answer.remark


async def first_turn(cluster: Cluster, ledger: Ledger, *, is_timed: bool = True) -> None:
    """Begin on an empty directory."""
    address = cluster.brokers[0].address
    wire.create_topic(address, TOPIC, QUEUES)
    wire.create_topic(address, DELAYED, 1)
    if isinstance(cluster, ApacheCluster):
        send_half_and_timed(cluster, is_timed=is_timed)
    await add_turn(cluster, 0, ledger)


async def add_turn(cluster: Cluster, turn: int, ledger: Ledger) -> None:
    """Send, and consume about half of it."""
    address = cluster.name_server_address
    await send_round(address, turn, ledger)
    await consume_due(address, ledger, 1)
    await consume(address, ledger, leave=MESSAGES // 2)
    await note_offsets(cluster, ledger)
    # A killed broker keeps of its offsets what it has saved.
    await asyncio.sleep(_APACHE_OFFSETS_SAVED_S if isinstance(cluster, ApacheCluster) else _OFFSETS_SAVED_S)


async def check_turn(cluster: Cluster, ledger: Ledger) -> None:
    """What the turn before left is all here."""
    address = cluster.name_server_address
    for topic, queue_id, end in ledger.ends:
        reached = max_offset(cluster, topic, queue_id)
        # A half message that nobody ends is written again when it is checked, on a slow machine meanwhile.
        assert reached == end or (topic == HALF_TOPIC and reached > end), (topic, queue_id)
    async with AdminClient([address]) as admin:
        route = await admin.topic_route(TOPIC)
        assert [(data.read_queue_nums, data.write_queue_nums) for data in route.queue_datas] == [(QUEUES, QUEUES)]
        stats = await admin.consume_stats(GROUP, TOPIC)
        now = sorted([queue.queue_id, each.consumer_offset] for queue, each in stats.offset_table.items())
        assert now == ledger.committed
    for text in (ledger.sent[1], ledger.sent[-1]):
        assert text.encode() in query_by_key(cluster, f"key-{text}")
    # Now come the messages sent back and those of level 2; those of level 1 do not come twice.
    await consume_due(address, ledger, len(ledger.due) - len(ledger.came_due))
    assert sorted(ledger.came_due) == sorted(ledger.due), ledger.due_offsets
    await consume(address, ledger, leave=0)
    assert Counter(ledger.received) - Counter(ledger.sent) == Counter(), "more than once"
    assert Counter(ledger.sent) - Counter(ledger.received) == Counter(), "missing"
    assert not ledger.given_back
    for queue_id in range(QUEUES):
        offsets = [offset for queue, offset in ledger.places if queue == queue_id]
        assert offsets == sorted(set(offsets)), "in order, none twice"
