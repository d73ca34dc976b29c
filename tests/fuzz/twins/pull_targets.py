"""Pulls through the kernel, beside the handler `PullProcessor.pull`: the same for any bytes."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from broker.client.clients import ConsumerRegistry, Member
from broker.config.live_config import LiveConfig
from broker.filter.consumer_filters import ConsumerFilters
from broker.longpolling.quota_reads import QuotaReads
from broker.metrics.message_flow import MessageFlow
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.processor.pull import PullProcessor
from broker.pull import pull_frames
from broker.pull.broadcast_offsets import BroadcastOffsets
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topics import TopicTable
from sprocket.common.files.config_file import ConfigFile
from sprocket.engine.choice import native
from sprocket.remoting.bodies.client import ConsumerData, SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.framing import FrameDecoder
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.routes import RouteTable
from store.message_store import MessageStore
from store.record.record import PendingMessage
from store.tier.reads.tiered_reads import TieredReads
from tests.broker.rig import broker_config
from tests.clock import ManualClock
from tests.fuzz.target import Target, pieces_of
from tests.fuzz.twins.send_targets import Output, compare_served
from tests.fuzz.twins.wire_targets import encoding, frame_of
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import SimStore, small_config

# Without a C compiler, `tests/engine` says so.
ENGINES: Final = () if native("broker.pull.kernel_native") is None else (True,)
TAGS: Final = ("A", "B", "A", "", "C")
COLD: Final = 4  # the first messages of queue 3 are checked at each read
_TOPICS: Final = (TopicConfig("Orders", 4, 4), TopicConfig("NoRead", 4, 4, perm=2), TopicConfig("Empty", 4, 4))
_GROUPS: Final = (
    SubscriptionGroupConfig("CG"), SubscriptionGroupConfig("Far", broker_id=7, group_sys_flag=2),
    SubscriptionGroupConfig("Off", consume_enable=False), SubscriptionGroupConfig("Broad"),
    SubscriptionGroupConfig("Heard", broker_id=7, consume_broadcast_enable=False),
)  # fmt: skip


@cache
def filled_store() -> MessageStore:
    """A store whose log and queues have several files.  Pulls change nothing but its counts."""
    sim = SimStore(SimDisk(), small_config(sync_flush=False), ManualClock())
    store, chance = sim.open(), random.Random(5)
    for number in range(400):
        tag = TAGS[number % len(TAGS)]
        body = chance.randbytes(chance.choice((0, 100, 100, 300, 2000)))
        store.append([PendingMessage("Orders", chance.randrange(4), body, b"", java_hash_code(tag), 0, 0, 0, bytes(8))])
    queue = store.kernel_reads.queue("Orders", 3)
    assert queue is not None
    queue.cold_end = COLD
    return store


def read_counts(store: MessageStore) -> tuple[int, int, int]:
    """Return the number of reads that found something, of those that found nothing, and of messages."""
    reader = store._reader
    return reader.found_times, reader.missed_times, reader.transferred_messages


@contextmanager
def path_of(is_native: bool) -> Iterator[None]:
    """Let new processors have one kernel."""
    is_built = native("broker.pull.kernel_native") is not None
    with encoding(is_native), patch.object(pull_frames, "_is_native", is_native and is_built):
        yield


class Listener:
    """The connection of a consumer that has sent heartbeats."""

    id = 1 << 40
    peer = ("10.0.0.1", 1)

    def notify(self, *arguments: object) -> None: ...


class Twin:
    """A kernel before the store that all share, with tables of its own.

    Without `has_kernel`, the handler serves all pulls.
    """

    def __init__(self, is_native: bool, *, has_kernel: bool = True, **broker: Any) -> None:
        self.is_native = is_native
        self.store = filled_store()
        self.clock = clock = ManualClock()
        changes = {"auto_create_subscription_group": False, **broker}
        self.config = LiveConfig(broker_config(**changes), self.store.config)
        file = ConfigFile(Path("nowhere"))
        version = self.config.plan_version
        self.topics, self.groups = TopicTable(self.config, file, clock), SubscriptionGroups(self.config, file, clock)
        self.topics.by_name.update((topic.topic_name, topic) for topic in _TOPICS)
        self.groups.by_name.update((group.group_name, group) for group in _GROUPS)
        self.consumers, self.offsets = ConsumerRegistry(clock, version), ConsumerOffsets(file, clock, version)
        self.flow = MessageFlow()
        self.quotas = Quotas(QuotaTable(file, clock, version), clock)
        filters = ConsumerFilters(self.config, file, clock)
        later = lambda seconds, call: SimpleNamespace(cancel=lambda: None)  # noqa: E731
        core: Any = SimpleNamespace(
            config=self.config, store=self.store, topics=self.topics, groups=self.groups, consumers=self.consumers,
            offsets=self.offsets, filters=filters, flow=self.flow, clock=clock,
            mappings=TopicQueueMappings(file, clock, version),
            quota_reads=QuotaReads(self.quotas, clock, later, filters.sql),
            tier=TieredReads(lambda: self.config.store, self.store, clock, None),
        )  # fmt: skip
        with path_of(is_native):
            self.processor = PullProcessor(core, None, BroadcastOffsets(core))
            routes = self.processor.routes()
            self.table = RouteTable(routes if has_kernel else [replace(route, frames=None) for route in routes])
        self.counters = ChannelCounters()
        self.subscribe("Heard", "CLUSTERING", "A || C")
        self.subscribe("Broad", "BROADCASTING", "*")

    def subscribe(self, group: str, model: str, expression: str, version: int = 5) -> None:
        """Register a consumer of the group with a subscription to Orders."""
        codes = [java_hash_code(tag.strip()) for tag in expression.split("||") if expression != "*"]
        data = SubscriptionData("Orders", expression, code_set=codes, sub_version=version)
        member = Member(Listener(), "client", "JAVA", 1, 0.0)  # type: ignore[arg-type] # as much as is used
        self.consumers.register(member, ConsumerData(group, "CONSUME_PASSIVELY", model, "", [data]), notify=False)

    def serve(self, pieces: list[bytes]) -> list[Any]:
        """Read the pieces of one connection; return everything that a peer or an operator can see of it."""
        before = read_counts(self.store)

        async def run() -> list[Any]:
            output = Output()
            channel = RemotingChannel(self.table, self.counters)
            channel.connection_made(output)
            channel.peer = ("10.0.0.9", 77)
            for piece in pieces:
                if not output.is_closed:
                    channel.data_received(piece)
            await asyncio.sleep(0)
            decoder = FrameDecoder()
            frames = list(decoder.feed(b"".join(output.written)))
            assert decoder.error is None and not decoder.pending_bytes
            return [frames, output.is_closed, dict(self.table.refusals.by_reason)]

        with path_of(self.is_native):
            found = asyncio.run(run())
        counts = [now - then for now, then in zip(read_counts(self.store), before, strict=True)]
        return [*found, counts, *self.state()]

    def state(self) -> list[Any]:
        """What is noted and counted."""
        offsets = self.offsets
        return [
            offsets.totals(), {key: dict(queues) for key, queues in offsets._pulls.items()}, offsets.changes,
            offsets.has_resets, self.flow.out_messages, self.flow.out_bytes, self.flow.out_bytes_by_key(),
        ]  # fmt: skip


def pull_header(**changes: Any) -> PullMessageRequestHeader:
    """The header of a pull with its subscription, as clients send it."""
    fields: dict[str, Any] = {
        "consumer_group": "CG", "topic": "Orders", "queue_id": 0, "queue_offset": 0, "max_msg_nums": 32, "sys_flag": 4,
        "commit_offset": 0, "suspend_timeout_millis": 15_000, "subscription": "*", "sub_version": 0,
        "expression_type": "TAG",
    }  # fmt: skip
    return PullMessageRequestHeader(**(fields | changes))


def pull_of(chance: random.Random, plain: float) -> bytes:
    """A frame of a pull, as clients write it with the probability `plain`."""
    code, oneway, pick = 11, False, chance.choice
    if chance.random() < plain:
        header = pull_header(
            queue_id=chance.randrange(4), queue_offset=chance.randrange(60), sys_flag=pick((4, 5, 7, 2, 3)),
            commit_offset=chance.randrange(60), subscription=pick(("*", "A", "A || B", None)),
            consumer_group=pick(("CG", "Heard")),
        )  # fmt: skip
    else:
        header = pull_header(
            consumer_group=pick(("CG", "Far", "Off", "Heard", "Broad", "None", "Zürich")),
            topic=pick(("Orders", "Orders", "NoRead", "Empty", "Unknown")), queue_id=pick((0, 1, 2, 3, 4, -1)),
            queue_offset=pick((0, 3, 47, 48, 60, 99, 100, 101, 500, -1, 2**62)), max_msg_nums=pick((-1, 0, 1, 5, 40)),
            sys_flag=pick((0, 1, 2, 4, 5, 6, 7, 8, -1)), commit_offset=pick((0, -1, 5, 2**40)),
            subscription=pick((None, "", "*", "A", "B||C", " A || ", "||", "no", "Zürich", "a > 1", "\t", "x" * 70)),
            sub_version=pick((0, 5, 6, -1)), expression_type=pick((None, "TAG", "SQL92", "other", "")),
            max_msg_bytes=pick((None, None, 0, 1, 500, 100_000)), request_source=pick((None, -1, -7, 0, 1)),
        )  # fmt: skip
        code, oneway = pick((11, 11, 11, 361)), chance.random() < 0.1
    return frame_of(chance, RequestCode(code), header, plain, oneway=oneway)


def compare_pulls(pieces: list[bytes], **broker: Any) -> None:
    """Serve the same bytes by handler and kernel, twice: at the second time the plans are known."""
    for is_native in ENGINES:
        handler, kernel = Twin(False, has_kernel=False, **broker), Twin(is_native, **broker)
        for _ in range(2):
            compare_served(handler, kernel, pieces)


def pull_twins(data: bytes) -> None:
    """Pulls that `data` chooses, then `data` itself as a stream of frames, in one piece and in many."""
    chance = random.Random(data)
    made = b"".join(pull_of(chance, chance.choice((0.0, 0.8, 1.0))) for _ in range(chance.choice((1, 10, 20))))
    compare_pulls([made + data])
    compare_pulls(pieces_of(data) or [b""])


_SEEDS: Final = [b"".join(pull_of(random.Random(seed), 0.8) for seed in range(at, at + 4)) for at in (0, 4, 8)]

ENGINE_PULL_TARGETS: Final = (Target("pull_twins", pull_twins, _SEEDS, 1 << 16),)
