"""Lag of consumer groups: what they have yet to read, what is on its way to them, and how old it is.

One walk over groups, topics and queues before an export computes the values of all its metrics.
Source of names and rules: RocketMQ 5.3.3, `ConsumerLagCalculator`, `ConsumeQueue.estimateMessageCount`.  RocketMQ shows
only groups with a connected member; the metrics named `sprocket_` show all groups with an offset in a topic.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.core import BrokerCore
from broker.filter.subscription_filter import TagFilter, is_tag_type, subscription_filter
from broker.metrics.labels import is_retry_or_dlq, is_system
from broker.topic.retry_topics import retry_topic
from sprocket.common.errors import StoreError
from sprocket.common.next_turn import in_turns
from sprocket.metrics.declared import Kind, Metric, Value, text
from sprocket.metrics.distribution import Labels
from sprocket.remoting.bodies.topic import PERM_READ, PERM_WRITE

_POP: Final = "CONSUME_POP"
_MILLISECONDS: Final = "milliseconds"
# Queues of one step: the store time of a message may be read from the disk.
_STEP_QUEUES: Final = 8
_GROUP_LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")


class PopProgress(Protocol):
    """Where the next pop of a queue begins."""

    def latest(self, topic: str, group: str, queue_id: int, /) -> int: ...


class InFlight(Protocol):
    """Number of messages of a queue that are popped and not acknowledged."""

    def count(self, topic: str, group: str, queue_id: int, /) -> int: ...


@dataclass(slots=True)
class GroupLag:
    """Lag of a group in one topic.  Times are ms since 1970; 0 if there is no such message."""

    group: str
    topic: str
    is_retry: bool
    is_connected: bool
    lag: int = 0
    committed: int = 0  # sum of the offsets
    oldest_ms: int = 0  # store time of the oldest message that is not consumed
    inflight: int = 0
    next_ms: int = 0  # store time of the oldest message that is not delivered
    ready: int = 0
    by_queue: list[int] = field(default_factory=list)
    stalled_ms: int = 0  # time since the group last moved, while it has something to read

    @property
    def skew(self) -> float:
        """Largest lag of a queue in relation to the mean: 1 if even, 0 without a lag."""
        total = sum(self.by_queue)
        return max(self.by_queue) * len(self.by_queue) / total if total else 0.0


class LiteLag(Protocol):
    """Lag of groups in the lite topics of a parent."""

    def rows(self, *, with_times: bool) -> Generator[None, None, list[tuple[str, str, int, int]]]:
        """Return group, parent, messages, and the store time, ms, of the oldest one; 0 without one or a wish."""


class ConsumerLag:
    """Lag of all groups, as of the last `look`.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, pops: PopProgress, inflight: InFlight, lite: LiteLag) -> None:
        self._core = core
        self._pops = pops
        self._inflight = inflight
        self._lite = lite
        self.rows: list[GroupLag] = []
        self.lite_rows: list[GroupLag] = []
        # By group and topic: committed offsets, and when they last changed, monotonic seconds.
        self._moved: dict[tuple[str, str], tuple[int, float]] = {}

    async def look(self) -> None:
        """Compute the lag of all groups."""
        await in_turns(self._steps(), self._core.clock.monotonic)

    def _steps(self) -> Generator[None, None, None]:
        rows: list[GroupLag] = []
        moved: dict[tuple[str, str], tuple[int, float]] = {}
        offline = yield from self._core.offsets.usual_grouped()
        for group, topic, is_connected, is_pop in self._subjects(offline):
            row = yield from self._row(group, topic, topic, is_connected, is_pop)
            rows.append(row)
            moved[group, topic] = self._note_progress(row)
            if is_pop:
                retry_row = yield from self._row(group, topic, self._retry_topic(topic, group), is_connected, True)
                rows.append(retry_row)
            yield
        self.rows, self._moved = rows, moved
        self.lite_rows = yield from self._of_lite_topics()

    def _of_lite_topics(self) -> Generator[None, None, list[GroupLag]]:
        broker = self._core.config.broker
        if not (broker.lite_lag_count_metrics_enable or broker.lite_lag_latency_metrics_enable):
            return []
        found = yield from self._lite.rows(with_times=broker.lite_lag_latency_metrics_enable)
        return [
            GroupLag(group, parent, False, True, lag=lag, ready=lag, oldest_ms=oldest_ms)
            for group, parent, lag, oldest_ms in found
        ]

    def _subjects(self, offline: Mapping[str, set[str]]) -> Iterator[tuple[str, str, bool, bool]]:
        """Yield groups and topics, whether the group is connected and subscribed, and whether it pops.

        `offline` are the topics in which groups have offsets.
        """
        core = self._core
        for group in core.groups.snapshot().subscription_group_table:
            connected = core.consumers.group(group)
            subscribed = set() if connected is None else {*connected.subscriptions}
            is_pop = connected is not None and connected.consume_type == _POP
            for topic in sorted(subscribed | offline.get(group, set())):
                config = core.topics.get(topic)
                permission = core.config.broker.broker_permission
                if config is None or is_retry_or_dlq(topic) or not config.perm & permission & (PERM_READ | PERM_WRITE):
                    continue
                yield group, topic, topic in subscribed, is_pop and topic in subscribed

    def _retry_topic(self, topic: str, group: str) -> str | None:
        """Return the topic with the messages that a group pops again; None if there is none."""
        broker = self._core.config.broker
        for is_v2 in (True, False) if broker.enable_retry_topic_v2 else (False,):
            name = retry_topic(topic, group, is_v2)
            if name in self._core.topics:
                return name
        return None

    def _row(
        self, group: str, topic: str, read: str | None, is_connected: bool, is_pop: bool
    ) -> Generator[None, None, GroupLag]:
        """Return the lag in `read`, which is `topic` or its retry topic."""
        row = GroupLag(group, topic, topic != read, is_connected)
        config = None if read is None else self._core.topics.get(read)
        if config is None or read is None:
            return row
        tags = self._tags(group, read)
        for queue_id in range(config.write_queue_nums):
            row.committed += self._add_queue(row, read, queue_id, is_pop, tags)
            if queue_id % _STEP_QUEUES == _STEP_QUEUES - 1:
                yield
        return row

    def _add_queue(self, row: GroupLag, topic: str, queue_id: int, is_pop: bool, tags: TagFilter | None) -> int:
        """Add one queue; return the group's committed offset there."""
        core, group = self._core, row.group
        end = max(0, core.store.max_offset(topic, queue_id))
        committed = core.offsets.query(group, topic, queue_id)
        inflight = self._inflight.count(topic, group, queue_id)
        if is_pop:
            pulled = self._pops.latest(topic, group, queue_id)
            pulled = committed if pulled < 0 else pulled
            pulled = end if pulled < 0 else pulled
            lag = self._count(topic, queue_id, pulled, end, tags) + inflight
            oldest = pulled - inflight
        else:
            pulled = max(0, core.offsets.query_pull(group, topic, queue_id))
            begun = pulled if committed < 0 else committed
            inflight = self._count(topic, queue_id, begun, pulled, tags)
            oldest = end if committed < 0 else committed
            lag = self._count(topic, queue_id, oldest, end, tags)
            pulled = pulled if committed >= 0 or pulled else end
        row.lag += lag
        row.inflight += inflight
        row.ready += self._count(topic, queue_id, pulled, end, tags)
        row.by_queue.append(lag)
        if lag:
            row.oldest_ms = _earlier(row.oldest_ms, self._time(topic, queue_id, max(oldest, 0)))
        if pulled < end:
            row.next_ms = _earlier(row.next_ms, self._time(topic, queue_id, pulled))
        return max(committed, 0)

    def _time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of a message, ms; 0 if it cannot be read."""
        store = self._core.store
        try:
            return store.store_time(topic, queue_id, max(offset, store.min_offset(topic, queue_id)))
        except StoreError:
            return 0

    def _tags(self, group: str, topic: str) -> TagFilter | None:
        """Return the filter of a group that reads only some tags, with estimateAccumulation."""
        if not self._core.config.broker.estimate_accumulation:
            return None
        connected = self._core.consumers.group(group)
        subscription = None if connected is None else connected.subscriptions.get(topic)
        # What an SQL92 expression selects is not in the queue.
        if subscription is None or not is_tag_type(subscription.expression_type):
            return None
        return subscription_filter(subscription)

    def _count(self, topic: str, queue_id: int, begin: int, end: int, tags: TagFilter | None) -> int:
        """Return the number of messages in a part of a queue that a group wants, estimated from its first ones."""
        if begin >= end:
            return 0
        if tags is None:
            return end - begin
        store = self._core.store
        at, matched = max(begin, store.min_offset(topic, queue_id)), 0
        first, scan_end = at, min(end, at + store.config.max_consume_queue_scan)
        while at < scan_end and matched <= store.config.sample_count_threshold:
            codes = store.tags_codes(topic, queue_id, at, scan_end)
            if not len(codes):
                return end - begin  # not a queue of this form
            matched += int(tags(codes).sum())
            at += len(codes)
        return matched if at >= end else matched * (end - first) // max(1, at - first)

    def _note_progress(self, row: GroupLag) -> tuple[int, float]:
        """Return the committed offsets of the row, and when they last moved."""
        now, committed = self._core.clock.monotonic(), row.committed
        before, moved_at = self._moved.get((row.group, row.topic), (-1, now))
        if committed != before or not row.lag:
            moved_at = now
        row.stalled_ms = int((now - moved_at) * 1000)
        return committed, moved_at

    # For export

    def metrics(self) -> list[Metric]:
        """Return the metrics."""

        def of_groups(
            name: str, says: str, value: Callable[[GroupLag], int], unit: str = "",
            of_lite: Callable[[], Sequence[GroupLag]] = tuple,
        ) -> Metric:  # fmt: skip
            def values() -> Iterator[tuple[Labels, Value]]:
                return self._connected([*self.rows, *of_lite()], value)

            return Metric(name, Kind.GAUGE, says, values, _GROUP_LABELS, unit, is_still=True)

        def ours(name: str, says: str, value: Callable[[GroupLag], float], unit: str = "") -> Metric:
            labels = ("consumer_group", "topic")
            return Metric(name, Kind.GAUGE, says, lambda: self._all(value), labels, unit, is_still=True)

        return [
            of_groups(
                "rocketmq_consumer_lag_messages", "messages that a group has not consumed", lambda row: row.lag,
                of_lite=self._counted,
            ),
            of_groups(
                "rocketmq_consumer_lag_latency", "age of the oldest message that a group has not consumed",
                lambda row: self._age(row.oldest_ms), _MILLISECONDS, self._timed,
            ),
            of_groups(
                "rocketmq_consumer_inflight_messages", "messages that a group got and has not acknowledged",
                lambda row: row.inflight,
            ),
            of_groups(
                "rocketmq_consumer_queueing_latency", "age of the oldest message that a group has not got",
                lambda row: self._age(row.next_ms), _MILLISECONDS,
            ),
            of_groups(
                "rocketmq_consumer_ready_messages", "messages that a group can get now", lambda row: row.ready,
                of_lite=self._counted,
            ),
            Metric(
                "sprocket_consumer_queue_lag_messages", Kind.GAUGE, "messages of a queue that a group has not consumed",
                self._queues, ("consumer_group", "topic", "queue_id"), is_still=True,
            ),
            ours(
                "sprocket_consumer_lag_skew", "largest lag of a queue divided by the mean: 1 if even, 0 without lag",
                lambda row: row.skew,
            ),
            ours(
                "sprocket_consumer_oldest_unacknowledged_age",
                "age of the oldest message that a group has not acknowledged; also of groups that are not connected",
                lambda row: self._age(row.oldest_ms), _MILLISECONDS,
            ),
            ours(
                "sprocket_consumer_stalled_time",
                "time since the offsets of a group last moved while it has messages to consume, seen at exports",
                lambda row: row.stalled_ms, _MILLISECONDS,
            ),
            ours(
                "sprocket_consumer_group_connected", "1 if a member of the group is connected and subscribed, else 0",
                lambda row: int(row.is_connected),
            ),
        ]  # fmt: skip

    def _age(self, time_ms: int) -> int:
        return max(0, self._core.clock.wall_ms() - time_ms) if time_ms else 0

    def _counted(self) -> Sequence[GroupLag]:
        return self.lite_rows if self._core.config.broker.lite_lag_count_metrics_enable else ()

    def _timed(self) -> Sequence[GroupLag]:
        return self.lite_rows if self._core.config.broker.lite_lag_latency_metrics_enable else ()

    @staticmethod
    def _connected(rows: Sequence[GroupLag], value: Callable[[GroupLag], int]) -> Iterator[tuple[Labels, Value]]:
        for row in rows:
            if row.is_connected:
                yield (row.group, row.topic, text(row.is_retry), text(is_system(row.topic, row.group))), value(row)

    def _all(self, value: Callable[[GroupLag], float]) -> Iterator[tuple[Labels, Value]]:
        for row in self.rows:
            if not row.is_retry:
                yield (row.group, row.topic), value(row)

    def _queues(self) -> Iterator[tuple[Labels, Value]]:
        for row in self.rows:
            if not row.is_retry:
                for queue_id, lag in enumerate(row.by_queue):
                    yield (row.group, row.topic, str(queue_id)), lag


def _earlier(known_ms: int, time_ms: int) -> int:
    """Return the earlier of two times; a time of 0 or less counts as none."""
    if time_ms <= 0:
        return known_ms
    return min(known_ms, time_ms) if known_ms else time_ms
