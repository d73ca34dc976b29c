"""Acknowledgements through the compiled kernel beside the handler: the same log, responses and counts."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from broker.ack import ack_frames
from broker.client.clients import ConsumerRegistry
from broker.config.broker_config import BrokerRole
from broker.config.live_config import LiveConfig
from broker.filter.consumer_filters import ConsumerFilters
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.longpolling.quota_reads import QuotaReads
from broker.metrics.message_flow import MessageFlow
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.out.other_brokers import OtherBrokers
from broker.pop import pop_frames
from broker.pop.popped import template_of
from broker.processor.pop.pop_service import PopService
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.role import Role
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.timer.timer_intake import TimerIntake
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topics import TopicTable
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.headers.pop import AckMessageRequestHeader
from sprocket.remoting.message.pop_extra_info import PopHandle
from sprocket.remoting.message.topic_names import REVIVE_TOPIC_PREFIX
from sprocket.remoting.routes import RouteTable
from store.record.record import PendingMessage
from store.tier.reads.tiered_reads import TieredReads
from tests.broker.rig import broker_config
from tests.clock import ManualClock
from tests.fuzz.target import Target, pieces_of
from tests.fuzz.twins.send_targets import HOST, compare_served, served
from tests.fuzz.twins.wire_targets import encoding, frame_of
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import SEGMENT_BYTES, SimStore, small_config

try:
    from broker.ack import kernel_native as compiled
    from broker.pop import kernel_native as compiled_pops
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = compiled_pops = None  # type: ignore[assignment]

_MESSAGES: Final = 50  # in each queue
_POPPED_MS: Final = ManualClock().wall_ms()
QUEUES: Final = 4
# Two stores take more memory than the bound on short inputs allows.
MIN_BYTES: Final = 40
_NAMES: Final = ("Orders", "Orders", "Orders", "%RETRY%CG_Orders", "Unknown")


@contextmanager
def path_of(is_native: bool) -> Iterator[None]:
    """Let new services pop and acknowledge through one twin."""
    with encoding(is_native):
        done = ResponseTemplate(ResponseCode.SUCCESS, ())
        found = template_of(ResponseCode.SUCCESS, is_ordered=False)
    with (
        patch.object(ack_frames, "DONE", done),
        patch.object(ack_frames, "_is_native", is_native and compiled is not None),
        patch.object(pop_frames, "FOUND", found),
        patch.object(pop_frames, "_is_native", is_native and compiled_pops is not None),
        encoding(is_native),
    ):
        yield


class Twin:
    """A store in memory, and the pop service before it, which serves the requests of one code.

    The compiled kernel serves the requests, or the handler.
    """

    code = RequestCode.ACK_MESSAGE

    def __init__(
        self,
        is_native: bool,
        *,
        sync_flush: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        **changes: Any,
    ) -> None:
        self.is_native = is_native
        self.clock, self.disk, self.flow = ManualClock(), SimDisk(), MessageFlow()
        store = small_config(sync_flush=sync_flush, segment_bytes=segment_bytes)
        self.sim = SimStore(self.disk, store, self.clock)
        self.store = self.sim.open()
        self.store.store_host = HOST
        self.config = config = LiveConfig(broker_config(**changes), self.store.config)
        file, later = ConfigFile(Path("nowhere")), lambda seconds, call: SimpleNamespace(cancel=lambda: None)
        topics = TopicTable(config, file, self.clock)
        self.fill(topics)
        revive = REVIVE_TOPIC_PREFIX + config.broker.broker_cluster_name
        topics.by_name[revive] = TopicConfig(revive, 8, 8)
        self.quotas = Quotas(QuotaTable(file, self.clock, config.plan_version), self.clock)
        filters = ConsumerFilters(config, file, self.clock)
        core: Any = SimpleNamespace(
            quotas=self.quotas, quota_reads=QuotaReads(self.quotas, self.clock, later, filters.sql), filters=filters,
            config=config, clock=self.clock, store=self.store, topics=topics, role=Role(BrokerRole.ASYNC_MASTER),
            groups=SubscriptionGroups(config, file, self.clock),
            offsets=ConsumerOffsets(file, self.clock, config.plan_version),
            consumers=ConsumerRegistry(self.clock, config.plan_version), call_later=later,
            random_below=random.Random(7).randrange,
            waits=ConfirmWaits(self.store, self.clock, later), flow=self.flow, delivery=None,
            mappings=TopicQueueMappings(file, self.clock, config.plan_version), client=None,
            tier=TieredReads(lambda: config.store, self.store, self.clock, None),
        )  # fmt: skip
        intake = TimerIntake(config, self.clock, core.random_below, lambda slot_time: 0)
        with path_of(is_native):
            self.service = PopService(core, file, intake, OtherBrokers(core.client, [], core.clock))
            routes = [route for route in self.service.routes() if route.code == self.code]
            assert (routes[0].frames is not None) == is_native
            self.table = RouteTable(routes)
        self.core = core
        self.counters = ChannelCounters()
        for queue_id in range(QUEUES):
            self.service.inflight.popped("Orders", "CG", queue_id, _MESSAGES)

    def fill(self, topics: TopicTable) -> None:
        """Create topics, and store their messages."""
        for name in ("Orders", "%RETRY%CG_Orders"):
            topics.by_name[name] = TopicConfig(name, QUEUES, QUEUES)
            self.store.append(
                [
                    PendingMessage(name, number % QUEUES, b"body", b"", 0, 0, 0, 0, bytes(8))
                    for number in range(_MESSAGES * QUEUES)
                ]
            )

    def serve(self, pieces: list[bytes]) -> list[Any]:
        """Read the pieces of one connection; return everything that a peer or an operator can see of it."""
        with path_of(self.is_native):
            return [*served(self.table, self.counters, self.sim, pieces), *self.state()]

    def state(self) -> list[Any]:
        """What is stored and counted."""
        service, store = self.service, self.store
        return [
            self.disk.files(), store.wrote_offset, store.confirm_offset, store.statistics.put_messages,
            store.statistics.put_bytes, dict(service.log.made), service.log.acks_written,
            {name: dict(read()) for name, read in service.counters.by_name().items()},
            [service.inflight.count("Orders", "CG", queue_id) for queue_id in range(QUEUES)],
            [(*queue, store.max_offset(*queue)) for queue in sorted(store.queues())],
        ]  # fmt: skip


def handle_of(**changes: Any) -> PopHandle:
    """The handle of a popped message."""
    return PopHandle(0, _POPPED_MS, 60_000, 1, "0", "broker-a", 0, 3)._replace(**changes)


def ack_header(handle: PopHandle, **changes: Any) -> AckMessageRequestHeader:
    """The header of an acknowledgement, as clients send it."""
    fields: dict[str, Any] = {
        "consumer_group": "CG", "topic": "Orders", "queue_id": handle.queue_id, "extra_info": handle.encode(),
        "offset": handle.queue_offset,
    }  # fmt: skip
    return AckMessageRequestHeader(**(fields | changes))


def _odd(chance: random.Random) -> AckMessageRequestHeader:
    pick = chance.choice
    handle = handle_of(
        first_offset=pick((0, 5, -1, 1 << 62)), pop_time_ms=pick((_POPPED_MS, 0, -5, 1 << 61)),
        invisible_ms=pick((60_000, 0, -1, 1, 1000, 1 << 40)), revive_queue_id=pick((0, 7, 8, -1, 999)),
        retry=pick(("0", "1", "9")), broker_name=pick(("broker-a", "", "b#c", "Zürich", "b\x02c", 'b"c\\', "x" * 900)),
        queue_id=pick((0, 3, 4, -1)), queue_offset=pick((0, 3, _MESSAGES, _MESSAGES + 1, -1, None)),
    )  # fmt: skip
    text = handle.encode()
    extra = pick((text, text, text, f"{text} ", f"{text} more", text.replace(" ", "  ", 1), f"{text}x", "", "1 2"))
    return ack_header(
        handle, extra_info=extra, consumer_group=pick(("CG", "CG", "Other", "Zürich", "g\x01", "g#")),
        topic=pick(_NAMES), offset=pick((0, 3, _MESSAGES, _MESSAGES + 1, -1, 1 << 62)),
        broker_name=pick((None, "broker-a", "other")),
    )  # fmt: skip


def ack_of(chance: random.Random, plain: float) -> bytes:
    """A frame of an acknowledgement, as clients write it with the probability `plain`."""
    oneway = False
    if chance.random() < plain:
        queue_id = chance.randrange(QUEUES)
        header = ack_header(handle_of(queue_id=queue_id, queue_offset=chance.randrange(_MESSAGES)))
    else:
        header, oneway = _odd(chance), chance.random() < 0.1
    return frame_of(chance, RequestCode.ACK_MESSAGE, header, plain, oneway=oneway)


def compare_acks(pieces: list[bytes], *, sync_flush: bool = False, **changes: Any) -> list[Any]:
    """Serve the same bytes by both twins, twice: at the second time the timer's queue exists."""
    pure, native = Twin(False, sync_flush=sync_flush, **changes), Twin(True, sync_flush=sync_flush, **changes)
    compare_served(pure, native, pieces)
    return compare_served(pure, native, pieces)


def ack_twins(data: bytes) -> None:
    """Acknowledgements that `data` chooses, then `data` itself as a stream of frames, in one piece and in many."""
    if compiled is None or len(data) < MIN_BYTES:
        return
    chance = random.Random(data)
    made = b"".join(ack_of(chance, chance.choice((0.0, 0.8, 1.0))) for _ in range(chance.choice((1, 10, 40))))
    compare_acks([made + data], sync_flush=chance.random() < 0.3)
    compare_acks(pieces_of(data) or [b""])


_SEEDS: Final = [b"".join(ack_of(random.Random(seed), 0.8) for seed in range(at, at + 4)) for at in (0, 4, 8)]

ENGINE_ACK_TARGETS: Final = (Target("ack_twins", ack_twins, _SEEDS, 1 << 16),)
