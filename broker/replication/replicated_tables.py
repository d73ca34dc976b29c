"""What a replica has besides the log, and how a slave takes it from its master.

Two things are not replicated.  Consumers bring their SQL filters to every replica with heartbeats.  What RocketMQ keeps
of broadcasting consumers its slaves do not have either.
Source: RocketMQ 5.3.3, `SlaveSynchronize`, `ConfigManager`.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from broker.config.versioned_table import VersionedTable
from broker.core import BrokerCore
from broker.offset.consumer_offsets import decoded, decoded_changes
from broker.periodic import Periodic
from broker.pop.order_info import ConsumerOrderInfo, OrderInfoTable
from broker.replicated_table import ReplicatedTable
from broker.service import Service
from broker.subscription.request_modes import RequestModes, RequestModeTable
from broker.timer.schedule import DelayOffsets, DelayOffsetTable
from broker.timer.timer_metrics import TimerMetricsTable
from broker.timer.timer_service import TimerService
from ha.table_queue import TableContent
from sprocket.common.errors import ProtocolError
from sprocket.common.files.saved_table import SavedTable
from sprocket.remoting.bodies.group import SubscriptionGroupTable
from sprocket.remoting.bodies.namespace import NamespaceTableBody
from sprocket.remoting.bodies.quota import QuotaTableBody
from sprocket.remoting.bodies.schedule import ScheduleChangesBody, SchedulePositionsBody, ScheduleTableBody
from sprocket.remoting.bodies.topic import DataVersion, TopicConfigTable
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingDetail, TopicQueueMappingTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from store.timer.timer_progress import CHECKPOINT_BYTES, TimerCheckpoint

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U", contravariant=True)
_SAVE_S: Final = 1.0


class _Copied(Protocol[U]):
    """Table that a slave replaces by what its master's `encode` returns."""

    def encode(self) -> bytes: ...

    def replace(self, table: U, /) -> None: ...


class TopicsAndMappings(TopicConfigTable):
    """Answer to GET_ALL_TOPIC_CONFIG as a slave reads it; a master before RocketMQ 5 has no mappings."""

    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None
    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class ReplicatedTables(Service):
    """All tables of one broker, in the order of need: a topic before its offsets.

    A slave saves what it received once a second.  What was not saved when it dies comes from the master again.
    `others` are saved by their owners.
    """

    def __init__(
        self,
        core: BrokerCore,
        delay_offsets: DelayOffsets,
        timer: TimerService,
        modes: RequestModes,
        order_info: ConsumerOrderInfo,
        others: Sequence[ReplicatedTable] = (),
    ) -> None:
        self._core = core
        # A change of these tables is written at once, because somebody waits for it.
        self.awaited: tuple[SavedTable, ...] = (
            core.topics, core.mappings, core.groups, modes, core.quotas.table, core.namespace_table,
            core.schedules,
        )  # fmt: skip
        self._modes = modes
        self._delivered = delay_offsets
        code, groups, quotas = RequestCode, core.groups, core.quotas.table
        self.topics = _topics(core)
        self.groups = _whole(
            "subscriptionGroup", code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _versions(groups), groups,
            SubscriptionGroupTable, is_awaited=True,
        )  # fmt: skip
        self.consumer_offsets = _consumer_offsets(core)
        self.delay_offsets = _delay_offsets(core, delay_offsets)
        self.timer_checkpoint = _timer_checkpoint(timer)
        tables: list[ReplicatedTable] = [
            *others,
            schedules_of(core),
            schedule_positions_of(core),
            _whole(
                "namespaces", None, _versions(core.namespace_table), core.namespace_table, NamespaceTableBody,
                is_awaited=True,
            ),
            self.topics,
            self.groups,
            _whole("quotas", None, _versions(quotas), quotas, QuotaTableBody, is_awaited=True),
            self.consumer_offsets,
            self.delay_offsets,
            _whole(
                "messageRequestMode", code.GET_ALL_MESSAGE_REQUEST_MODE, _changes(modes), modes, RequestModeTable,
                is_awaited=True,
            ),
            _whole("consumerOrderInfo", None, _changes(order_info), order_info, OrderInfoTable),
        ]  # fmt: skip
        if core.config.store.timer_wheel_enable:
            metrics = timer.metrics
            tables += [
                self.timer_checkpoint,
                _whole("timermetrics", code.GET_TIMER_METRICS, _changes(metrics), metrics, TimerMetricsTable),
            ]
        self.all = tuple(tables)

    def named(self, name: str) -> ReplicatedTable | None:
        """Return the table with a name; None if there is none."""
        return next((table for table in self.all if table.name == name), None)

    def periodic(self) -> list[Periodic]:
        """Save what was received."""
        return [Periodic("replicated_tables", _SAVE_S, self._save)] if self._core.role.is_slave else []

    def activate(self) -> None:
        """Clamp offsets to the log, because this slave begins to serve its group."""
        if self._core.role.is_slave:
            self._core.offsets.clamp(self._core.store.max_offset)

    def install(self, received: Sequence[TableContent]) -> None:
        """Merge a slave's tables into those of a master that lost its own, and save them.

        What only this master has stays: system topics, and what is on its disk if only the log was lost.  Offsets only
        move forward.  Raises ProtocolError, or StoreError if a file cannot be written.
        """
        core = self._core
        for name, content in received:
            if name == self.topics.name:
                topics = loads(content, TopicsAndMappings)
                topics.topic_config_table = core.topics.by_name | topics.topic_config_table
                topics.data_version.next(core.clock.wall_ms())
                details = topics.topic_queue_mapping_detail_map or {}
                topics.topic_queue_mapping_detail_map = core.mappings.by_name | details
                topics.mapping_data_version.next(core.clock.wall_ms())
                _replace_topics(core, topics)
            elif name == self.groups.name:
                groups = loads(content, SubscriptionGroupTable)
                groups.subscription_group_table = core.groups.by_name | groups.subscription_group_table
                groups.data_version.next(core.clock.wall_ms())
                core.groups.replace(groups)
            elif name == self.consumer_offsets.name:
                core.offsets.catch_up(decoded(content))
                core.offsets.clamp(core.store.max_offset)
            elif name == self.delay_offsets.name:
                self._delivered.catch_up(loads(content, DelayOffsetTable))
            elif (replicated := self.named(name)) is not None:
                replicated.apply(content)
        for table in self.awaited:
            table.persist()
        logger.warning(
            "event=tables_recovered tables=%d topics=%d groups=%d",
            len(received), len(core.topics.by_name), len(core.groups.by_name),
        )  # fmt: skip

    async def _save(self) -> None:
        for table in self.awaited:
            await table.save()

    def save(self) -> None:
        """Save the request modes that were received; the broker saves topics and groups.  Raises StoreError."""
        self._modes.persist_changes()


def _reader(content_type: type[T], replace: Callable[[T], None]) -> Callable[[bytes], Callable[[], None]]:
    return lambda content: partial(replace, loads(content, content_type))


def _versions(*tables: VersionedTable) -> Callable[[], Hashable]:
    def mark() -> Hashable:
        return tuple((table.data_version.timestamp, table.data_version.counter) for table in tables)

    return mark


def _changes(table: SavedTable) -> Callable[[], Hashable]:
    return lambda: table.changes


def _whole(
    name: str,
    code: RequestCode | None,
    mark: Callable[[], Hashable],
    table: _Copied[T],
    body: type[T],
    *,
    is_awaited: bool = False,
    tells_deliveries: bool = False,
) -> ReplicatedTable:
    """Return a table that is sent as a whole."""
    read = _reader(body, table.replace)
    return ReplicatedTable(name, code, mark, table.encode, read, tells_deliveries, is_awaited=is_awaited)


def _topics(core: BrokerCore) -> ReplicatedTable:
    def encode() -> bytes:
        topics, mappings = core.topics.snapshot(), core.mappings.snapshot()
        return msgspec.json.encode(
            TopicsAndMappings(
                topics.topic_config_table, topics.data_version, mappings.topic_queue_mapping_info_map,
                mappings.data_version,
            )
        )  # fmt: skip

    return ReplicatedTable(
        "topics", RequestCode.GET_ALL_TOPIC_CONFIG, _versions(core.topics, core.mappings), encode,
        _reader(TopicsAndMappings, partial(_replace_topics, core)), is_early=True,
    )  # fmt: skip


def _replace_topics(core: BrokerCore, table: TopicsAndMappings) -> None:
    # First the mappings: a topic that has one must not be served without it.
    details = table.topic_queue_mapping_detail_map
    if details is not None:
        core.mappings.replace(TopicQueueMappingTable(details, table.mapping_data_version))
    core.topics.replace(table)


def schedules_of(core: BrokerCore) -> ReplicatedTable:
    """Return the table of schedules."""
    table = core.schedules

    def merge(content: bytes) -> None:
        table.merge(loads(content, ScheduleChangesBody))

    return ReplicatedTable(
        "schedules", None, lambda: table.change_count, table.encode, _reader(ScheduleTableBody, table.replace),
        is_early=True, encode_changes=table.encode_changes, merge_changes=merge,
    )  # fmt: skip


def schedule_positions_of(core: BrokerCore) -> ReplicatedTable:
    """Return how far each schedule has fired."""
    positions = core.schedule_positions
    return _whole(
        "schedulePositions", None, _changes(positions), positions, SchedulePositionsBody, tells_deliveries=True
    )


def _consumer_offsets(core: BrokerCore) -> ReplicatedTable:
    offsets = core.offsets
    return ReplicatedTable(
        "consumerOffset", RequestCode.GET_ALL_CONSUMER_OFFSET, lambda: offsets.changes, offsets.encode,
        lambda content: partial(offsets.replace, decoded(content)),
        merge_changes=lambda content: offsets.merge(decoded_changes(content)),
    )  # fmt: skip


def _delay_offsets(core: BrokerCore, offsets: DelayOffsets) -> ReplicatedTable:
    def replace(table: DelayOffsetTable) -> None:
        offsets.replace(table, core.store.wrote_offset)

    return ReplicatedTable(
        "delayOffset", RequestCode.GET_ALL_DELAY_OFFSET, lambda: tuple(offsets.delivered.items()), offsets.encode,
        _reader(DelayOffsetTable, replace), tells_deliveries=True,
    )  # fmt: skip


def _timer_checkpoint(timer: TimerService) -> ReplicatedTable:
    def mark() -> Hashable:
        return timer.timer.checkpoint.encode()

    def follow(checkpoint: TimerCheckpoint) -> None:
        timer.follow(checkpoint)

    return ReplicatedTable(
        "timercheck", RequestCode.GET_TIMER_CHECK_POINT, mark, lambda: timer.timer.checkpoint.encode(),
        lambda content: partial(follow, _decoded_checkpoint(content)), tells_deliveries=True,
    )  # fmt: skip


def _decoded_checkpoint(content: bytes) -> TimerCheckpoint:
    if len(content) < CHECKPOINT_BYTES:
        raise ProtocolError("timercheck", f"a timer checkpoint of {len(content)} bytes")
    return TimerCheckpoint.decode(content)
