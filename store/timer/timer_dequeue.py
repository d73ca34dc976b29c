"""Delivery from the wheel to the real topics, in batches, slot by slot after each slot's end.

Source: RocketMQ 5.3.3, `TimerMessageStore.dequeue`, `TimerDequeueGetMessageService`, `TimerDequeuePutMessageService`.
"""

import logging
from array import array
from typing import Any, Final

from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from store.record.record import PendingMessage
from store.timer.timed_message import TOPIC_FIELD, TimedMessage, read_timed
from store.timer.timer_log import DELETE, ROLL, TimerLog, Unit
from store.timer.timer_state import TimerState
from store.timer.timer_wheel import Slot

_log = logging.getLogger(__name__)

_units: Final = native("store.timer.timer_units_native")

# Units of a slot to read in one turn before the first of them is delivered.
_WALK_UNITS: Final = 2048
_MAX_BYTES: Final = 1 << 20
_BEFORE_DELIVERY: Final = failpoint("timer_dequeue.before_delivery")
_DELIVERED: Final = failpoint("timer_dequeue.delivered")


class SlotDelivery:
    """Units of a slot that is over.  They are chained from new to old, and delivered from old to new."""

    def __init__(self, time_ms: int, slot: Slot, delivered_before: int) -> None:
        self.time_ms = time_ms
        self.slot = slot
        self._walk_at = slot.last
        self.delivered_before = delivered_before
        # Positions in the timer log, newest first: of messages, and of delete requests.
        self.positions = array("q")
        self._deletes = array("q")
        self.deleted: dict[bytes, str] = {}  # key -> real topic
        self.used: set[bytes] = set()  # keys that deleted a message
        # Count as the slot counts: a delete request counts -1.
        self.messages = 0

    def prepare(self, state: TimerState, max_units: int) -> bool:
        """Read up to `max_units` more units of the slot.  Return whether all are read."""
        log = state.log
        while self._walk_at >= self.delivered_before and self._walk_at >= 0:
            if not max_units:
                return False
            max_units -= self._walk_chain(log, max_units) or self._walk(log)
        while self._deletes:
            if not max_units:
                return False
            max_units -= 1
            self._read_delete(state, self._deletes.pop())
        return True

    def _walk_chain(self, log: TimerLog, max_units: int) -> int:
        """Read up to `max_units` units that the engine takes; return how many."""
        part = None if _units is None else log.file_at(self._walk_at)
        if _units is None or part is None:
            return 0
        found, self._walk_at = _units.chained(*part, self._walk_at, max(self.delivered_before, 0), max_units)
        self.positions.extend(found)
        self.messages += len(found)
        return len(found)

    def _walk(self, log: TimerLog) -> int:
        """Read one unit; return 1."""
        position = self._walk_at
        unit = log.unit(position)
        if unit is None or unit.previous >= position:
            # The file has expired, and its messages, too; or it is damaged.
            _log.warning("event=timer_slot_ends_early slot=%d position=%d", self.time_ms, position)
            self._walk_at = -1
            return 1
        chosen = self._deletes if unit.magic & DELETE and not unit.magic & ROLL else self.positions
        chosen.append(position)
        self.messages += -1 if unit.magic & DELETE else 1
        self._walk_at = unit.previous
        return 1

    def _read_delete(self, state: TimerState, position: int) -> None:
        unit = state.log.unit(position)
        message = "" if unit is None else read_timed(state.store, unit.physical_offset, unit.record_bytes)
        if isinstance(message, TimedMessage) and message.deleted_key is not None:
            self.deleted[message.deleted_key] = message.real_topic


class _Delivery:
    """Deliveries of one turn: messages, or with `moves` the records that the engine makes."""

    def __init__(self, moves: Any | None) -> None:
        self.messages: list[PendingMessage] = []
        self.moves = moves
        # Whether there is one that `moves` does not take: then all become messages, because their order counts.
        self.is_unusual = False
        self.counts: dict[str, int] = {}  # by real topic
        self.deleted: list[tuple[SlotDelivery, bytes]] = []
        self.bytes = 0
        # Slots that this delivery completes; the slot that it does not, with the number of its delivered units.
        self.whole: list[SlotDelivery] = []
        self.partial: tuple[SlotDelivery, int] | None = None

    def __len__(self) -> int:
        return len(self.messages if self.moves is None else self.moves)

    def count(self, topic: str, change: int) -> None:
        """Add `change` to the count of a topic."""
        self.counts[topic] = self.counts.get(topic, 0) + change


class TimerDequeue:
    """Delivery of due messages: by slot, and within a slot in the order of arrival."""

    def __init__(self, state: TimerState) -> None:
        self._state = state
        self._slot: SlotDelivery | None = None

    @property
    def is_mid_slot(self) -> bool:
        """Whether a slot is delivered in part."""
        return self._slot is not None

    def dequeue(self, max_messages: int) -> bool:
        """Deliver up to `max_messages` due messages.  Return whether there may be more.

        Raises `StoreError` if the store accepts nothing now; then the next call delivers them.
        """
        state = self._state
        if state.config.timer_stop_dequeue or not state.wheel.is_open:
            return False
        delivery = _Delivery(state.new_moves())
        read_ms, more = self._gather(delivery, max_messages)
        if delivery.is_unusual:
            delivery = _Delivery(None)
            read_ms, more = self._gather(delivery, max_messages)
        if delivery:
            _BEFORE_DELIVERY()
        if delivery.moves:
            state.deliver_moves(delivery.moves, lambda: self._delivered(delivery, read_ms))
        else:
            state.deliver(delivery.messages, lambda: self._delivered(delivery, read_ms))
        return more

    def _gather(self, delivery: _Delivery, max_messages: int) -> tuple[int, bool]:
        """Fill `delivery`.  Return where to continue, and whether more may be due."""
        state = self._state
        read_ms, end_ms = state.progress.read_ms, state.now_slot_ms()
        slot = self._slot
        walk = _WALK_UNITS
        while True:
            if slot is None:
                if read_ms < end_ms:
                    read_ms = state.wheel.next_used(read_ms, end_ms) if state.latest_ms >= read_ms else end_ms
                if read_ms >= end_ms:
                    return read_ms, False
                slot = self._begin(read_ms)
            before = len(slot.positions)
            if not slot.prepare(state, walk):
                if not delivery:
                    self._slot = slot
                return read_ms, True
            walk -= min(walk, len(slot.positions) - before)
            taken = self._take(slot, delivery, max_messages)
            if taken < len(slot.positions):
                delivery.partial = slot, taken
                return read_ms, True
            delivery.whole.append(slot)
            slot, read_ms = None, read_ms + state.slot_ms
            if len(delivery) >= max_messages or not walk:
                return read_ms, True

    def _begin(self, time_ms: int) -> SlotDelivery:
        slot = self._state.wheel.get(time_ms)
        assert slot is not None
        return SlotDelivery(time_ms, slot, self._state.progress.delivered_before(time_ms))

    def _take(self, slot: SlotDelivery, delivery: _Delivery, max_messages: int) -> int:
        """Add as many of the slot's messages as fit.  Return how many of its units are done."""
        state, positions = self._state, slot.positions
        now_ms = state.clock.wall_ms()
        taken = 0
        while taken < len(positions) and len(delivery) < max_messages and delivery.bytes < _MAX_BYTES:
            unit = state.log.unit(positions[-taken - 1])
            if unit is not None:
                if delivery.moves is not None:
                    moved = self._move(slot, unit, taken, max_messages, now_ms, delivery)
                    if not moved:
                        delivery.is_unusual = True
                        return taken
                    taken += moved
                    continue
                self._add(slot, unit, now_ms, delivery)
                delivery.bytes += unit.record_bytes
            taken += 1
        return taken

    def _move(
        self, slot: SlotDelivery, unit: Unit, taken: int, max_messages: int, now_ms: int, delivery: _Delivery
    ) -> int:
        """Let the engine take the records from `unit` on that follow in one segment; return how many."""
        state, moves = self._state, delivery.moves
        store, part = state.store, state.log.file_at(slot.positions[-taken - 1])
        reads, offset = store.kernel_reads, unit.physical_offset
        if slot.deleted or moves is None or part is None or not reads.cold_end <= offset < store.confirm_offset:
            return 0
        segment, base, end = reads.segment_at(offset)
        # Records before this are checked at each read.
        first = max(base, reads.cold_end)
        count, size_bytes, counts = moves.add_units(
            *part, slot.positions, taken, max_messages, _MAX_BYTES - delivery.bytes, segment[first - base :], first,
            min(end, store.confirm_offset), TOPIC_FIELD, slot.time_ms, state.slot_ms, now_ms,
        )  # fmt: skip
        delivery.bytes += size_bytes
        for topic, records in counts:
            delivery.count(topic, -records)
        return int(count)

    def _add(self, slot: SlotDelivery, unit: Unit, now_ms: int, delivery: _Delivery) -> None:
        state = self._state
        message = read_timed(state.store, unit.physical_offset, unit.record_bytes)
        if isinstance(message, str):
            reason = message
        elif unit.magic & ROLL:
            delivery.count(message.real_topic, 1 if unit.magic & DELETE else -1)
            delivery.messages.append(message.rolled(unit.write_ms, now_ms, state.tags_codes))
            return
        elif message.due_ms // state.slot_ms * state.slot_ms != slot.time_ms:
            reason = "the record has another time"
        else:
            if slot.deleted and message.key in slot.deleted:
                delivery.deleted.append((slot, message.key))
                return
            real = message.real(unit.write_ms, now_ms, state.tags_codes)
            if real is not None and real.topic not in state.barred_topics:
                delivery.count(message.real_topic, -1)
                delivery.messages.append(real)
                return
            reason = "no real topic and queue"
        peer_lines.error(
            _log, "", "event=timed_message_dropped physical_offset=%d reason=%r", unit.physical_offset, reason
        )

    def _delivered(self, delivery: _Delivery, read_ms: int) -> None:
        state = self._state
        if delivery:
            _DELIVERED()
        state.dequeued += len(delivery)
        for topic, change in delivery.counts.items():
            state.on_count(topic, change)
        for slot, key in delivery.deleted:
            slot.used.add(key)
        for slot in delivery.whole:
            self._slot = None
            state.waiting -= slot.messages
            for key, topic in slot.deleted.items():
                if key not in slot.used:
                    # It deleted nothing, but was counted as if it had.
                    state.on_count(topic, 1)
        if delivery.partial is not None:
            self._slot, taken = delivery.partial
            del self._slot.positions[-taken:]
        if read_ms > state.progress.read_ms:
            state.advance(state.progress.read_until(read_ms))
