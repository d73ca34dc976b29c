"""State of ordered pops: what a group holds of each queue, which blocks further pops until it is acknowledged.

Saved in ``config/consumerOrderInfo.json``.  Source: RocketMQ 5.3.3, `ConsumerOrderInfoManager`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from broker.offset.offset_map import SEPARATOR
from broker.pop.order_locks import OrderLocks, QueueKey
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.topic.topics import TopicTable
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.pop_extra_info import message_order_count_entry, queue_order_count_entry, retry_kind

logger = logging.getLogger(__name__)

# Results of `commit_and_next` other than an offset.
ILLEGAL: Final = -1
NOTHING_TO_COMMIT: Final = -2
# A queue without a pop for this long is forgotten.
_CLEAN_AFTER_MS: Final = 24 * 3600 * 1000


class OrderInfo(msgspec.Struct):
    """The last pop of one queue; field names as in the file."""

    pop_time: int = msgspec.field(default=0, name="popTime")  # ms
    invisible_time: int | None = msgspec.field(default=None, name="i")  # ms
    # The first is a queue offset, the others are distances from it.
    distances: list[int] = msgspec.field(default=[], name="o")
    visible_at: dict[int, int] | None = msgspec.field(default=None, name="ot")  # queue offset -> ms
    counts: dict[int, int] | None = msgspec.field(default=None, name="oc")  # queue offset -> earlier deliveries
    last_consumed: int = msgspec.field(default=0, name="l")  # ms
    acknowledged: int = msgspec.field(default=0, name="cm")  # bit i: the i-th is acknowledged
    attempt_id: str | None = msgspec.field(default=None, name="a")

    def offsets(self) -> list[int]:
        """Return the queue offsets."""
        if not self.distances:
            return []
        first = self.distances[0]
        return [first, *(first + distance for distance in self.distances[1:])]

    def open_offsets(self) -> list[int]:
        """Return the queue offsets that are not acknowledged."""
        return [offset for index, offset in enumerate(self.offsets()) if not self.acknowledged >> index & 1]

    def _visible(self, offset: int, invisible_time: int) -> int:
        return (self.visible_at or {}).get(offset, self.pop_time + invisible_time)

    def blocks(self, attempt_id: str | None, invisible_time: int, now: int) -> bool:
        """Return whether a pop must wait: a message is still invisible, and the pop is not a retry of the same attempt.

        `invisible_time` is used for a pop that was stored without one.
        """
        if not self.distances or (self.attempt_id is not None and self.attempt_id == attempt_id):
            return False
        if self.invisible_time is None or self.invisible_time <= 0:
            self.invisible_time = invisible_time
        held_ms = self.invisible_time
        return any(now < self._visible(offset, held_ms) for offset in self.open_offsets())

    def free_at(self, now: int) -> int | None:
        """Return when the next message becomes visible, ms; `now` if none is invisible, None if unknown."""
        if not self.distances:
            return None
        for offset in self.open_offsets():
            if self.invisible_time is None or self.invisible_time <= 0:
                return None
            visible = self._visible(offset, self.invisible_time)
            if now < visible:
                return visible
        return now

    def next_offset(self) -> int:
        """Return where the group continues: at the first offset that is not acknowledged, or after the last."""
        if not self.distances:
            return NOTHING_TO_COMMIT
        still_open = self.open_offsets()
        return still_open[0] if still_open else self.offsets()[-1] + 1

    def count_after(self, before: "OrderInfo") -> None:
        """Set how often each message was delivered before; a retry of the same attempt does not count."""
        counts = before.counts or {}
        if before.attempt_id is not None and before.attempt_id == self.attempt_id:
            self.counts = counts
            return
        again = set(before.offsets())
        self.counts = {offset: counts.get(offset, 0) + 1 for offset in self.offsets() if offset in again}


class OrderInfoTable(msgspec.Struct):
    """Content of consumerOrderInfo.json."""

    table: dict[str, dict[int, OrderInfo]] = {}  # topic@group -> queue id -> its last pop


class ConsumerOrderInfo(SavedTable):
    """``topic@group`` -> queue id -> `OrderInfo`.  Lives in the event loop's thread."""

    def __init__(
        self,
        file: ConfigFile,
        topics: TopicTable,
        groups: SubscriptionGroups,
        clock: Clock,
        locks: OrderLocks,
    ) -> None:
        super().__init__(file)
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._locks = locks
        self._table: dict[str, dict[int, OrderInfo]] = {}

    def decode(self, content: bytes) -> None:
        """Take over the pops of the file, and schedule when blocked queues become free.  Raises ProtocolError."""
        self._table = loads(content, OrderInfoTable).table
        self._expect_free()

    def _expect_free(self) -> None:
        now = self._clock.wall_ms()
        for key, queues in self._table.items():
            topic, group = _split(key)
            for queue_id, info in queues.items():
                free_at = info.free_at(now)
                if group and free_at is not None and free_at > now:
                    self._locks.expect(QueueKey(topic, group, queue_id), free_at)

    def replace(self, table: OrderInfoTable) -> None:
        """Replace the table by a master's."""
        self._table = table.table
        self.changes += 1
        self._expect_free()

    def encode(self) -> bytes:
        """Return the table for a slave."""
        return dumps(OrderInfoTable(self._table))

    def _find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        queues = self._table.get(topic + SEPARATOR + group)
        return None if queues is None else queues.get(queue_id)

    def _changed(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        self.changes += 1
        free_at = info.free_at(self._clock.wall_ms())
        if free_at is not None:
            self._locks.expect(QueueKey(topic, group, queue_id), free_at)

    # For pops and acknowledgements

    def update(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        pop_time: int,
        invisible_time: int,
        offsets: Sequence[int],
        order_count_info: list[str],
    ) -> None:
        """Note the delivery of the messages at `offsets` (at least one, ascending).

        Appends how often each was delivered before to `order_count_info`: the entries of the response's orderCountInfo.
        """
        queues = self._table.setdefault(topic + SEPARATOR + group, {})
        distances = [offsets[0], *(offset - offsets[0] for offset in offsets[1:])]
        now = self._clock.wall_ms()
        info = OrderInfo(pop_time, invisible_time, distances, last_consumed=now, attempt_id=attempt_id)
        before = queues.get(queue_id)
        if before is not None:
            info.count_after(before)
        queues[queue_id] = info
        order_count_info += _order_counts(topic, queue_id, info)
        self._changed(topic, group, queue_id, info)

    def blocks(self, attempt_id: str | None, topic: str, group: str, queue_id: int, invisible_time: int) -> bool:
        """Return whether the queue is blocked now; see `OrderInfo.blocks`."""
        info = self._find(topic, group, queue_id)
        return info is not None and info.blocks(attempt_id, invisible_time, self._clock.wall_ms())

    def has(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether the last pop of the queue is known."""
        return self._find(topic, group, queue_id) is not None

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the last pop of a queue whose offset was reset."""
        if self._table.get(topic + SEPARATOR + group, {}).pop(queue_id, None) is not None:
            self.changes += 1

    def commit_and_next(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> int:
        """Acknowledge the message at `offset`.

        Returns the offset to commit, `ILLEGAL` if the message was not delivered, or `NOTHING_TO_COMMIT` if it belongs
        to another pop.
        """
        info = self._find(topic, group, queue_id)
        if info is None:
            return offset + 1
        if info.distances and pop_time != info.pop_time:
            peer_lines.warning(
                logger, "",
                "event=ordered_ack_of_another_pop topic=%s group=%s queue=%d offset=%d pop_time=%d last_pop_time=%d",
                topic, group, queue_id, offset, pop_time, info.pop_time,
            )  # fmt: skip
            return NOTHING_TO_COMMIT
        offsets = info.offsets()
        if offset not in offsets:
            peer_lines.warning(
                logger, "", "event=ordered_ack_unknown topic=%s group=%s queue=%d offset=%d", topic, group, queue_id,
                offset,
            )  # fmt: skip
            return ILLEGAL
        info.acknowledged |= 1 << offsets.index(offset)
        self._changed(topic, group, queue_id, info)
        return info.next_offset()

    def update_next_visible_time(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_at: int
    ) -> None:
        """Make the message at `offset` of the pop at `pop_time` visible at `visible_at`, ms, and not before."""
        info = self._find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time or offset not in info.offsets():
            peer_lines.warning(
                logger, "", "event=invisible_time_of_unknown topic=%s group=%s queue=%d offset=%d pop_time=%d",
                topic, group, queue_id, offset, pop_time,
            )  # fmt: skip
            return
        info.visible_at = (info.visible_at or {}) | {offset: visible_at}
        self._changed(topic, group, queue_id, info)

    # The file

    def clean(self) -> None:
        """Forget deleted topics, groups and queues, and queues without a pop for a day."""
        oldest = self._clock.wall_ms() - _CLEAN_AFTER_MS
        for key, queues in list(self._table.items()):
            topic, group = _split(key)
            if not group:
                continue
            config = self._topics.get(topic)
            if config is None or group not in self._groups or not queues:
                peer_lines.info(logger, "", "event=order_info_cleaned key=%s", key)
                del self._table[key]
                self.changes += 1
                continue
            for queue_id, info in list(queues.items()):
                if queue_id >= config.read_queue_nums or info.last_consumed < oldest:
                    peer_lines.info(logger, "", "event=order_info_cleaned key=%s queue=%d", key, queue_id)
                    del queues[queue_id]
                    self.changes += 1

    def _content(self) -> Callable[[], bytes]:
        # For many queues `pretty` is slow; another thread does it.
        copied = OrderInfoTable(
            {key: {queue_id: replace(info) for queue_id, info in queues.items()} for key, queues in self._table.items()}
        )
        return lambda: pretty(copied)


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return topic, group


def _order_counts(topic: str, queue_id: int, info: OrderInfo) -> list[str]:
    """Return an entry for each message that was delivered before, then the lowest count, for old clients."""
    kind = retry_kind(topic)
    counts = info.counts or {}
    entries = [message_order_count_entry(kind, queue_id, offset, count) for offset, count in counts.items()]
    # Only messages that were delivered before have counts; with fewer counts than messages some are new.
    lowest = min(counts.values(), default=0) if len(counts) == len(info.distances) else 0
    entries.append(queue_order_count_entry(kind, queue_id, lowest))
    return entries
