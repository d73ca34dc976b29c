"""Entry of messages from the queue of rmq_sys_wheel_timer into the wheel.

Source: RocketMQ 5.3.3, `TimerMessageStore.enqueue`, `doEnqueue`, `TimerEnqueuePutService`.
"""

import logging
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.engine.choice import native
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.config.timer_config import BLANK_SLOTS
from store.record.record import PendingMessage
from store.timer.timed_message import NEVER_ENQUEUED, TOPIC_FIELD, TimedMessage, read_timed, topic_of
from store.timer.timer_log import DEFAULT, DELETE, ROLL, UNIT_BYTES, UnitBatch
from store.timer.timer_recovery import Recovered
from store.timer.timer_state import TimerState

_log = logging.getLogger(__name__)

_engine: Final = native("store.timer.timer_units_native")
# So many messages that wait are worth a turn at once.
ENTRY_MESSAGES: Final = 256 if _engine is None else 512
# Max messages of one turn: those that arrive before a turn that is due enter with it.
MAX_ENTRY_MESSAGES: Final = 1024
# Of them, max messages that are entered one by one.  One of these takes a hundred times as long as a compiled one.
_MAX_ONE_BY_ONE: Final = 256
# Messages after an unusual one that are entered one by one, before the engine is asked again.
_UNUSUAL: Final = 16
_MAX_CACHED_HASHES: Final = 4096
_BEFORE_UNITS: Final = failpoint("timer_enqueue.before_units")
_UNITS_WRITTEN: Final = failpoint("timer_enqueue.units_written")
_SLOTS_WRITTEN: Final = failpoint("timer_enqueue.slots_written")


class _Entries:
    """Units of one batch, and the resulting slots."""

    def __init__(self, batch: UnitBatch, now_slot: int, window_ms: int) -> None:
        self.batch = batch
        self.now_slot = now_slot
        self.window_ms = window_ms  # a message enters the wheel at most this far ahead
        # time -> first, last, messages
        self.slots: dict[int, tuple[int, int, int]] = {}
        # By real topic.
        self.counts: dict[str, int] = {}


class TimerEnqueue:
    """Entry of messages in the order of their queue."""

    def __init__(self, state: TimerState) -> None:
        self._state = state
        self._hashes: dict[str, int] = {}
        self._known: Recovered | None = None

    def begin(self, recovered: Recovered | None) -> None:
        """Continue at `state.progress`.  Skip messages that are known to have entered."""
        self._known = recovered

    def enqueue(self, max_messages: int) -> None:
        """Enter up to `max_messages` messages.  Raises `StoreError`; the next call enters the rest."""
        state = self._state
        store, now_slot = state.store, state.now_slot_ms()
        if state.config.timer_stop_enqueue or state.progress.read_ms > now_slot:
            return
        low, end = store.min_offset(TIMER_TOPIC, 0), store.max_offset(TIMER_TOPIC, 0)
        start = state.progress.queue_offset
        if start < low:
            _log.warning("event=timer_queue_offset_corrected from=%d to=%d", start, low)
            start = low
        if start >= end or not self._has_room(now_slot):
            return
        if not state.wheel.is_open:
            state.wheel.create()
            state.advance(replace(state.progress, read_ms=now_slot) if not state.progress.read_ms else state.progress)
        entries = _Entries(state.log.begin(), now_slot, state.roll_window_ms)
        late: list[tuple[PendingMessage, str]] = []
        reached = start
        places = store.entries(TIMER_TOPIC, 0, start, min(end, start + max_messages))
        limit, one_by_one = start + len(places), _MAX_ONE_BY_ONE
        while reached < limit:
            if not late and (usual := self._enter_compiled(reached, places[reached - start :], entries)):
                # The next one may be usual too: in the next segment of the log, or of one slot too many.
                reached += usual
                continue
            part = places[reached - start :][: min(_UNUSUAL, one_by_one)].tolist()
            if not part:
                break
            one_by_one -= len(part)
            for physical_offset, size_bytes, _ in part:
                if not self._enter(reached, physical_offset, size_bytes, entries, late):
                    limit = reached
                    break
                reached += 1
        self._write(entries)
        state.deliver([message for message, _ in late], lambda: self._entered(start, reached))

    def _entered(self, start: int, reached: int) -> None:
        state = self._state
        if reached > state.progress.queue_offset:
            state.advance(replace(state.progress, queue_offset=reached))
        state.enqueued += reached - start
        if self._known is not None and reached >= self._known.known_until:
            self._known = None

    def _has_room(self, now_slot: int) -> bool:
        """Return whether all slots, from the next to deliver to the latest possible one, fit the ring."""
        state = self._state
        # A rebuild begins with an empty ring, however long ago `read_ms` is.
        if state.is_rebuilding or state.latest_ms < max(1, state.progress.read_ms):
            return True
        behind_ms = now_slot - state.progress.read_ms
        return behind_ms + state.roll_window_ms < (state.wheel.ring_slots - BLANK_SLOTS) * state.slot_ms

    def _enter_compiled(self, offset: int, places: npt.NDArray[np.void], entries: _Entries) -> int:
        """Enter the usual messages with which `places` begin by the engine; return their number."""
        state, known = self._state, self._known
        if _engine is None or offset < state.progress.rebuild_until:
            return 0
        if known is not None and offset < known.known_until:
            return 0
        store, first = state.store, int(places["physical_offset"][0])
        if first < store.kernel_reads.cold_end:
            return 0
        segment, base, end = store.kernel_reads.segment_at(first)
        batch, slots, counts = entries.batch, entries.slots, entries.counts
        writer = _engine.UnitWriter(
            TOPIC_FIELD, entries.now_slot, state.slot_ms, entries.window_ms, batch.end, batch.file_bytes,
            lambda slot_ms: self._slot(slot_ms, entries), self._hash_of_name,
        )  # fmt: skip
        units = writer.enter(places, segment, base, min(end, store.confirm_offset, store.wrote_offset))
        if not units:
            return 0
        batch.content += units
        slots.update((time_ms, (head, last, messages)) for time_ms, head, last, messages in writer.slots_entered())
        for name, messages in writer.topics_entered():
            topic = topic_of(name)
            if topic is not None and messages:
                counts[topic] = counts.get(topic, 0) + messages
        return len(units) // UNIT_BYTES

    def _slot(self, slot_ms: int, entries: _Entries) -> tuple[int, int, int] | None:
        """Return first and last unit and number of messages of a slot; None if another time still uses its place."""
        held = entries.slots.get(slot_ms)
        if held is None:
            if self._is_taken(slot_ms):
                return None
            held = self._state.wheel.get(slot_ms) or (-1, -1, 0)
        return held

    def _hash_of_name(self, name: bytes) -> int | None:
        topic = topic_of(name)
        return None if topic is None else self._hash(topic)

    def _enter(
        self,
        offset: int,
        physical_offset: int,
        size_bytes: int,
        entries: _Entries,
        late: list[tuple[PendingMessage, str]],
    ) -> bool:
        """Handle one message.  Return False if it must wait for the next batch: late messages go alone."""
        state = self._state
        known = self._known
        if known is not None and offset < known.known_until and physical_offset in known.known_offsets:
            return True
        message = read_timed(state.store, physical_offset, size_bytes)
        if isinstance(message, str):
            peer_lines.error(
                _log, "", "event=timed_message_dropped queue_offset=%d physical_offset=%d reason=%r", offset,
                physical_offset, message,
            )  # fmt: skip
            return True
        slot_ms = message.due_ms // state.slot_ms * state.slot_ms
        # Do not compare slots: `read_ms` may lie within a slot if slots were narrower before.
        if message.due_ms < state.progress.read_ms and offset < state.progress.rebuild_until:
            return True  # delivered before the wheel was rebuilt
        if slot_ms < entries.now_slot:
            if entries.slots:
                return False
            self._deliver_late(message, late)
            return True
        if late:
            return False
        self._add(message, physical_offset, size_bytes, entries)
        return True

    def _deliver_late(self, message: TimedMessage, late: list[tuple[PendingMessage, str]]) -> None:
        """Add a late message to `late`, for its real topic.  A late delete request has no effect."""
        if message.deleted_key is not None:
            return
        state = self._state
        real = message.real(NEVER_ENQUEUED, state.clock.wall_ms(), state.tags_codes)
        if real is None or real.topic in state.barred_topics:
            peer_lines.error(_log, "", "event=timed_message_dropped topic=%s reason=no_such_place", message.real_topic)
        else:
            late.append((real, message.real_topic))

    def _add(self, message: TimedMessage, physical_offset: int, size_bytes: int, entries: _Entries) -> None:
        state, now_slot, slots, topic = self._state, entries.now_slot, entries.slots, message.real_topic
        due_ms, magic, weight = message.due_ms, DEFAULT, 1
        if due_ms - now_slot >= entries.window_ms:
            due_ms, magic = self._rolled(due_ms, entries), DEFAULT | ROLL
        slot_ms = due_ms // state.slot_ms * state.slot_ms
        held = slots.get(slot_ms)
        if held is None:
            if self._is_taken(slot_ms):
                slot_ms = due_ms = self._free_slot(slot_ms, now_slot)
                magic |= ROLL
            held = slots.get(slot_ms) or state.wheel.get(slot_ms) or (-1, -1, 0)
        if message.deleted_key is not None:
            magic, weight = magic | DELETE, -1
        # A plain tuple: a `Unit` takes longer to make than to write.
        position = entries.batch.add(
            (held[1], magic, now_slot, due_ms - now_slot, physical_offset, size_bytes, self._hash(topic))
        )
        slots[slot_ms] = (position if held[0] == -1 else held[0], position, held[2] + weight)
        entries.counts[topic] = entries.counts.get(topic, 0) + weight

    def _rolled(self, due_ms: int, entries: _Entries) -> int:
        """Return when a message that is due too far ahead leaves the wheel, to enter it again."""
        now_slot, window_ms, slot_ms = entries.now_slot, entries.window_ms, self._state.slot_ms
        slots = window_ms // slot_ms
        if due_ms - now_slot - window_ms < slots // 3 * slot_ms:
            # Otherwise the last roll would be very short.
            return now_slot + slots // 2 * slot_ms
        return now_slot + window_ms

    def _is_taken(self, slot_ms: int) -> bool:
        """Return whether another time still uses the place: the clock went back by weeks."""
        occupant = self._state.wheel.occupant_ms(slot_ms)
        return occupant != slot_ms and occupant >= max(1, self._state.progress.read_ms)

    def _free_slot(self, slot_ms: int, now_slot: int) -> int:
        while slot_ms > now_slot and self._is_taken(slot_ms):
            slot_ms -= self._state.slot_ms
        while self._is_taken(slot_ms):
            slot_ms += self._state.slot_ms
        return slot_ms

    def _hash(self, topic: str) -> int:
        value = self._hashes.get(topic)
        if value is None:
            value = java_hash_code(topic)
            if len(self._hashes) < _MAX_CACHED_HASHES:
                self._hashes[topic] = value
        return value

    def _write(self, entries: _Entries) -> None:
        """Write the units, then the slots: a slot never points at a missing unit.  If a slot fails, restore all."""
        state = self._state
        if not entries.slots:
            return
        wheel, log = state.wheel, state.log
        before = {slot_ms: wheel.read_raw(slot_ms) for slot_ms in entries.slots}
        log_end = log.end
        try:
            _BEFORE_UNITS()
            log.write(entries.batch)
            _UNITS_WRITTEN()
            for slot_ms, (first, last, messages) in entries.slots.items():
                wheel.put(slot_ms, first, last, messages)
            _SLOTS_WRITTEN()
        except StoreError:
            for slot_ms, content in before.items():
                wheel.write_raw(slot_ms, content)
            log.end = log_end
            raise
        state.latest_ms = max(state.latest_ms, *entries.slots)
        state.waiting += sum(entries.counts.values())
        for topic, weight in entries.counts.items():
            state.on_count(topic, weight)
