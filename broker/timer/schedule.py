"""Delayed messages: delivery from the schedule topic to their real topic when they are due.

A send with a delay level goes to queue ``level - 1`` of SCHEDULE_TOPIC_XXXX.  Its ConsumeQueue entries hold the
delivery time in ms in place of a tags code, so each queue is in the order of that time.  The offset up to which each
queue was delivered is in ``config/delayOffset.json``.
Source: RocketMQ 5.3.3, `ScheduleMessageService`.
"""

import logging
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Final

import msgspec

from broker.config.versioned_table import VersionedTable
from broker.core import BrokerCore
from broker.service import Service
from broker.turns import NextTurn, loop_later, loop_time
from sprocket.common.clock import Clock
from sprocket.common.errors import CorruptRecord, DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.figures import Declared, FigureFamily
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.properties import (
    IDEMPOTENCE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    encoded_name,
    find_last,
    without,
)
from sprocket.remoting.message.record import record_size
from sprocket.remoting.message.topic_names import SCHEDULE_GROUP, SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from store.config.delay_levels import parse_delay_levels
from store.delivery import Outstanding, deliver_fitting
from store.flush.confirmation import Arrival
from store.message_store import PendingMessage
from store.record.record import Record, TagsCodes, decode

logger = logging.getLogger(__name__)

# Messages that one turn of the loop delivers, so that other work is done in between.
_BATCH_MESSAGES = 256
_RETRY_S = 1.0
# Longest sleep, after which a step of the wall clock is noticed.
_MAX_SLEEP_S = 1.0
# delayOffsetUpdateVersionStep
_VERSION_STEP = 200
_REAL_TOPIC = encoded_name(REAL_TOPIC)
_REAL_QUEUE_ID = encoded_name(REAL_QUEUE_ID)
_ID = encoded_name(IDEMPOTENCE_ID)
_OFFSETS_BEFORE_SAVE: Final = failpoint("schedule.offsets_before_save")
_OFFSETS_SAVED: Final = failpoint("schedule.offsets_saved")
_BEFORE_DELIVERY: Final = failpoint("schedule.before_delivery")
_DELIVERED: Final = failpoint("schedule.delivered")


class DelayOffsetTable(msgspec.Struct, rename="camel"):
    """Content of delayOffset.json, and the answer to GET_ALL_DELAY_OFFSET."""

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = {}  # delay level -> offset in its queue


class DelayOffsets(VersionedTable):
    """Delivered offset of each level, and how much of that may be saved.

    An offset is saved only after the delivered messages are flushed: a crash in between would lose them.
    """

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self.delivered: dict[int, int] = {}
        self._saveable: dict[int, int] = {}
        # (end of a delivery in the log, level, offset after it)
        self._unflushed: deque[tuple[int, int, int]] = deque()
        self._deliveries = 0

    def decode(self, content: bytes) -> None:
        """Take over the offsets of the file.  Raises ProtocolError."""
        table = loads(content, DelayOffsetTable)
        self.delivered, self._saveable = dict(table.offset_table), dict(table.offset_table)
        self.data_version = table.data_version or self.data_version

    def place(self, level: int, offset: int) -> None:
        """Set the offset at which a level continues, without a delivery."""
        self.delivered[level] = self._saveable[level] = offset
        self.changes += 1

    def replace(self, table: DelayOffsetTable, log_end: int) -> None:
        """Replace the offsets by a master's; the records before `log_end` contain what was delivered up to them."""
        for level, offset in table.offset_table.items():
            if self.delivered.get(level) != offset:
                self.delivered[level] = offset
                self._unflushed.append((log_end, level, offset))
        self.data_version = table.data_version or self.data_version

    def catch_up(self, table: DelayOffsetTable) -> int:
        """Take the offsets of another replica that are higher; return how many levels that were."""
        higher = {level: end for level, end in table.offset_table.items() if end > self.delivered.get(level, 0)}
        for level, end in higher.items():
            self.place(level, end)
        if higher and table.data_version is not None:
            self.data_version = table.data_version
        return len(higher)

    def advance(self, level: int, offset: int, log_end: int, count: int) -> None:
        """Note that `count` messages before `offset` were delivered by records that end at `log_end`."""
        self.delivered[level] = offset
        self._unflushed.append((log_end, level, offset))
        steps_before = self._deliveries // _VERSION_STEP
        self._deliveries += count
        if self._deliveries // _VERSION_STEP > steps_before:
            self.data_version.next(self._clock.wall_ms())

    def flushed(self, flushed_offset: int) -> None:
        """Let offsets be saved whose deliveries are before `flushed_offset`, the flushed end of the log."""
        while self._unflushed and self._unflushed[0][0] <= flushed_offset:
            _, level, offset = self._unflushed.popleft()
            self._saveable[level] = offset
            self.changes += 1

    def _content(self) -> Callable[[], bytes]:
        table = DelayOffsetTable(copy(self.data_version), dict(self._saveable))
        return lambda: pretty(table)

    def _write(self, content: bytes) -> None:
        _OFFSETS_BEFORE_SAVE()
        super()._write(content)
        _OFFSETS_SAVED()

    def encode(self) -> bytes:
        """Return the answer to GET_ALL_DELAY_OFFSET."""
        return dumps(DelayOffsetTable(copy(self.data_version), dict(self.delivered)))


class ScheduleService(Service):
    """Delivery of due messages, in batches, with one timer for all levels."""

    def __init__(self, core: BrokerCore, offsets: DelayOffsets) -> None:
        delay_levels = core.config.store.message_delay_level
        self._store = core.store
        self._delivery = core.delivery
        self._clock = core.clock
        self._flow = core.flow
        self._delays_ms = parse_delay_levels(delay_levels)
        self._tags_codes = TagsCodes(delay_levels)
        self.offsets = offsets
        self._next_turn = NextTurn(self._turn, loop_time, loop_later, _MAX_SLEEP_S)
        self._running = False
        # Levels with a delivery under way.
        self._outstanding: dict[int, Outstanding] = {}

    @property
    def max_level(self) -> int:
        return len(self._delays_ms)

    def activate(self) -> None:
        """Start to deliver from the saved offsets, corrected to the range of the queues."""
        for level in range(1, self.max_level + 1):
            low = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            high = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            offset = self.offsets.delivered.get(level, 0)
            if not low <= offset <= high:
                self.offsets.place(level, min(max(offset, low), high))
                logger.warning(
                    "event=delay_offset_corrected level=%d from=%d to=%d", level, offset, self.offsets.delivered[level]
                )
        self._running = True
        self._store.on_arrival_of.setdefault(SCHEDULE_TOPIC, []).append(self._arrived)
        self._next_turn.wake_in(0.0)

    def deactivate(self) -> None:
        """Stop delivering."""
        self._running = False
        self._store.on_arrival_of[SCHEDULE_TOPIC].remove(self._arrived)
        for outstanding in self._outstanding.values():
            outstanding.cancel()
        self._outstanding.clear()
        self._next_turn.cancel()

    def figures(self) -> list[Declared]:
        """Return the progress of each level in use."""
        return [
            FigureFamily(
                "scheduleMessageOffset_<level>",
                "queue offset up to which a delay level is delivered, and the end of its queue",
                lambda: {
                    level: f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
                    for level, offset in sorted(self.offsets.delivered.items())
                },
            )
        ]

    # The timer

    def _arrived(self, arrivals: list[Arrival]) -> None:
        for queue, first, _ in arrivals if self._running else ():
            entry = self._store.entry(SCHEDULE_TOPIC, queue.queue_id, first)
            if entry is not None:
                self._next_turn.wake_in((entry[2] - self._clock.wall_ms()) / 1000)

    def _turn(self) -> None:
        if not self._running:
            return
        try:
            wait_s = self.deliver_due()
        except DiskFailed:
            return  # Latched: the store reports it to its owner.
        except StoreError as error:
            logger.warning("event=delivery_postponed reason=%r", str(error))
            wait_s = _RETRY_S
        if wait_s is not None:
            self._next_turn.wake_in(wait_s)

    # Delivery

    def deliver_due(self) -> float | None:
        """Deliver up to a batch of each level; return the seconds until the next is due, None if nothing waits.

        Raises StoreError if the store refuses; those messages stay due.
        """
        wait_s: float | None = None
        for level in range(1, self.max_level + 1):
            seconds = None if level in self._outstanding else self._deliver_level(level)
            if seconds is not None:
                wait_s = seconds if wait_s is None else min(wait_s, seconds)
        return wait_s

    def _deliver_level(self, level: int) -> float | None:
        now = self._clock.wall_ms()
        # A delivery time further ahead than the level's delay was computed before the clock stepped back.
        latest = now + self._delays_ms[level - 1]
        store, queue_id = self._store, level - 1
        offset = start = self.offsets.delivered.get(level, 0)
        messages: list[PendingMessage] = []
        wait_s: float | None = None
        while True:
            if offset - start >= _BATCH_MESSAGES:
                wait_s = 0.0
                break
            entry = store.entry(SCHEDULE_TOPIC, queue_id, offset)
            if entry is None:
                low = store.min_offset(SCHEDULE_TOPIC, queue_id)
                if offset < low:
                    self.offsets.place(level, low)
                    wait_s = 0.0
                break
            physical_offset, size_bytes, due = entry
            if now < due <= latest:
                wait_s = (due - now) / 1000
                break
            offset += 1
            message = self._restored(physical_offset, size_bytes)
            if message is not None:
                messages.append(message)
        if offset > start:
            _BEFORE_DELIVERY()
            self._deliver(level, start, offset, messages)
        return None if level in self._outstanding else wait_s

    def _deliver(self, level: int, start: int, end: int, messages: list[PendingMessage]) -> None:
        """Deliver a level's queue from `start` to before `end`; the level waits until that is done."""

        def done() -> None:
            _DELIVERED()
            self.offsets.advance(level, end, self._store.wrote_offset, end - start)
            self._count(messages)
            if self._outstanding.pop(level, None) is not None:
                self._next_turn.wake_in(0.0)

        def dropped(message: PendingMessage, reason: str) -> None:
            peer_lines.error(logger, "", "event=delayed_message_dropped topic=%s reason=%r", message.topic, reason)

        outstanding = deliver_fitting(self._delivery, messages, done, dropped)
        if outstanding is not None:
            self._outstanding[level] = outstanding

    def _count(self, messages: list[PendingMessage]) -> None:
        """Count delivered messages as RocketMQ does: as sent to their topic, and as got from this one."""
        sizes = 0
        for message in messages:
            size = record_size(
                message.sys_flag, len(message.body), len(message.topic.encode()), len(message.properties)
            )
            self._flow.delivered_delayed(message.topic, size)
            sizes += size
        if messages:
            self._flow.delivered(SCHEDULE_TOPIC, SCHEDULE_GROUP, len(messages), sizes)

    def _restored(self, physical_offset: int, size_bytes: int) -> PendingMessage | None:
        """Return the message for its real topic; None if it cannot be read or has no real topic."""
        try:
            view = self._store.record_at(physical_offset, size_bytes)
            record = "not in the log" if view is None else decode(view)
        except CorruptRecord as damage:
            record = damage.reason
        if isinstance(record, Record):
            restored = self._real(record)
            if restored is not None:
                return restored
            record = "no real topic and queue"
        peer_lines.error(
            logger, "", "event=delayed_message_dropped physical_offset=%d reason=%r", physical_offset, record
        )
        return None

    def _real(self, record: Record) -> PendingMessage | None:
        properties = bytes(record.properties)
        topic, queue_id = find_last(properties, _REAL_TOPIC), find_last(properties, _REAL_QUEUE_ID)
        if topic is None or queue_id is None or not queue_id.isdigit():
            return None
        name = java_text(topic)
        if name in (TRANS_HALF_TOPIC, SCHEDULE_TOPIC):
            return None
        if _ID in properties:
            # An idempotent message keeps its id where it was stored first, and only there.
            properties = without(properties, _ID)
        return PendingMessage(
            name,
            int(queue_id),
            record.body,
            properties,
            self._tags_codes.of(name, properties, 0),
            record.flag,
            record.sys_flag,
            record.born_timestamp,
            record.born_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
        )
