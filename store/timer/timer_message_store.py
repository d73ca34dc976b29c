"""Timer: moves messages from rmq_sys_wheel_timer to their real topics when they are due.

A message due in slot S, from S to before S + timerPrecisionMs, is delivered when the slot is over by the wall clock:
never early, and late by at most the width of a slot.

Steps of the wall clock
-----------------------
Times are those of the wall clock, as producers give them.  When it jumps ahead, all slots that are over are delivered.
When it steps back, the wheel steps back, too: a message sent now is not due because the clock was once ahead.
Delivered messages are not delivered again, see `store.timer.timer_progress.Barrier`.

Crashes
-------
The checkpoint follows the CommitLog's flush, and a crash takes the wheel back to it.  Messages delivered since, whose
delivery is not yet flushed or not yet in the checkpoint, are delivered again.  Messages that entered the wheel since
are known by their units and do not enter twice.

Source: RocketMQ 5.3.3, `TimerMessageStore`.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from sprocket.common.clock import Clock
from sprocket.common.failpoints import failpoint
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.config.timer_config import SLOTS_TOTAL
from store.delivery import Delivery, OwnLog
from store.disk.disk import Disk, DiskFile
from store.message_store import MessageStore
from store.timer.timer_dequeue import TimerDequeue
from store.timer.timer_enqueue import MAX_ENTRY_MESSAGES, TimerEnqueue
from store.timer.timer_log import DELETE
from store.timer.timer_progress import DataVersion, Progress, ProgressLog, TimerCheckpoint, load_checkpoint
from store.timer.timer_recovery import recover
from store.timer.timer_state import OnCount, TimerState
from store.timer.timer_wheel import TimerWheel

_log = logging.getLogger(__name__)

# Messages delivered in one turn of the loop.
_DEQUEUE_MESSAGES: Final = 256
_BEFORE_SYNC: Final = failpoint("timer_message_store.before_sync")
_SYNCED: Final = failpoint("timer_message_store.synced")
_CHECKPOINT_WRITTEN: Final = failpoint("timer_message_store.checkpoint_written")
_REBUILD_NOTED: Final = failpoint("timer_message_store.rebuild_noted")
_STOPPED_S: Final = 1.0


@dataclass(frozen=True)
class TimerFlush:
    """What one flush writes."""

    disk: Disk
    path: Path
    wheel: TimerWheel
    log_files: list[DiskFile]
    checkpoint: TimerCheckpoint

    def write(self) -> None:
        """Sync the timer log and the wheel, then write the checkpoint.  May run in any thread.  Raises `StoreError`."""
        _BEFORE_SYNC()
        for file in self.log_files:
            file.sync()
        self.wheel.sync()
        _SYNCED()
        self.disk.write_small(self.path, self.checkpoint.page())
        _CHECKPOINT_WRITTEN()


class TimerMessageStore:
    """Wheel, timer log and checkpoint of one store.  It belongs to the store's owner thread."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        on_count: OnCount,
        barred_topics: Collection[str] = (),
        slots_total: int = SLOTS_TOTAL,
        delivery: Delivery | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._path = store.config.store_path_root_dir / "config" / "timercheck"
        self._state = TimerState(store, clock, on_count, barred_topics, slots_total, delivery or OwnLog(store))
        # Called after each delivery that was in flight.
        self.on_delivered: list[Callable[[], None]] = self._state.on_delivered
        self._enqueue = TimerEnqueue(self._state)
        self._dequeue = TimerDequeue(self._state)
        self._version = DataVersion()
        self._saved: Progress | None = None
        self._is_following = False

    # Life

    def load(self) -> None:
        """Recover the files and continue from them.  Raises `StoreError`."""
        state, store = self._state, self._store
        found = load_checkpoint(store.disk, self._path)
        checkpoint = TimerCheckpoint() if found is None else found
        self._version, progress = checkpoint.version, checkpoint.progress
        self._saved = progress if found is not None else None
        high = store.max_offset(TIMER_TOPIC, 0)
        if progress.queue_offset > high:
            _log.warning("event=timer_queue_offset_corrected from=%d to=%d", progress.queue_offset, high)
            checkpoint = replace(checkpoint, progress=replace(progress, queue_offset=high))
        recovered = recover(store, state.wheel, state.log, checkpoint, self._clock.wall_ms())
        # The slots of a rebuild that did not end may be of long ago, and keep new ones from the ring.
        if recovered.needs_rebuild or (recovered.progress.rebuild_until and state.wheel.is_open):
            progress = self._rebuild(recovered.progress)
        else:
            progress = recovered.progress
            self._enqueue.begin(recovered)
        self._begin(progress)

    def _begin(self, progress: Progress) -> None:
        state = self._state
        # Another store's queue may have been longer: what comes after the end of this one was never delivered.
        until = min(progress.rebuild_until, self._store.max_offset(TIMER_TOPIC, 0))
        progress = replace(progress, rebuild_until=until)
        state.progress = progress
        state.unflushed = ProgressLog(progress)
        if state.wheel.is_open:
            if not progress.read_ms:
                # A crash came before the first checkpoint.
                now_slot = state.now_slot_ms()
                earliest = state.wheel.earliest_ms()
                progress = replace(progress, read_ms=now_slot if earliest is None else min(earliest, now_slot))
                state.progress = progress
            state.latest_ms = state.wheel.latest_ms()
            state.waiting = state.wheel.count_from(progress.read_ms)

    # A replica

    def follow(self, master: TimerCheckpoint) -> None:
        """Follow another store, which delivers.  `master` is its progress; this store's log holds its deliveries.

        Take no turn until `take_over`.  Raises `StoreError`.
        """
        state = self._state
        if not self._is_following:
            self._is_following = True
            self._enqueue, self._dequeue = TimerEnqueue(state), TimerDequeue(state)
        # Units before the master's offset that were due before its time are delivered.
        until = max(master.progress.queue_offset, master.progress.rebuild_until)
        progress = Progress(master.progress.read_ms, rebuild_until=until)
        if state.wheel.is_open or state.log.end:
            # The progress dates from when this store delivered: it lacks later deliveries.
            self._rebuild(progress)
            state.wheel.remove()
            state.latest_ms = state.waiting = 0
        self._version = master.version
        state.progress = progress
        state.unflushed.note(self._store.wrote_offset, progress)

    @property
    def is_following(self) -> bool:
        """Whether another store delivers, see `follow`."""
        return self._is_following

    def take_over(self) -> None:
        """Deliver from now on, and continue where the followed store was.  Raises `StoreError`.

        The wheel is rebuilt from the topic's queue.
        """
        if self._is_following:
            self._is_following = False
            start = self._store.min_offset(TIMER_TOPIC, 0)
            self._begin(replace(self._state.progress, queue_offset=start))

    def _rebuild(self, progress: Progress) -> Progress:
        """Start to rebuild wheel and timer log from the topic's queue."""
        state, store = self._state, self._store
        start = store.min_offset(TIMER_TOPIC, 0)
        started = Progress(progress.read_ms, 0, start, max(progress.queue_offset, progress.rebuild_until))
        _log.warning("event=timer_rebuild from=%d until=%d read_ms=%d", start, started.rebuild_until, started.read_ms)
        # Written first: half rebuilt files must not pass for complete ones.
        store.disk.write_small(self._path, TimerCheckpoint(started, self._version).page())
        _REBUILD_NOTED()
        state.log.destroy()
        state.wheel.create()
        self._saved = started
        return started

    def close(self) -> None:
        """Close the files."""
        self._state.wheel.close()
        self._state.log.close()

    # Work

    def turn(self) -> float | None:
        """Let messages enter the wheel and deliver due ones, a batch of each.

        Return the seconds until the next turn has work: 0 if there is more now; None if nothing waits, or while a
        delivery is in flight, whose end `on_delivered` reports.  Raises `StoreError` if the store accepts nothing now.
        """
        state = self._state
        if state.outstanding is not None:
            return None
        now_slot = state.now_slot_ms()
        if state.progress.read_ms > now_slot and not self._dequeue.is_mid_slot:
            self._step_back(now_slot)
        before = state.enqueued + state.dequeued
        # While a slot is delivered that is not over any more, nothing may enter it.
        if not self._dequeue.is_mid_slot or state.progress.read_ms < now_slot:
            self._enqueue.enqueue(MAX_ENTRY_MESSAGES)
        may_dequeue = state.outstanding is None and not state.is_rebuilding
        more = may_dequeue and self._dequeue.dequeue(_DEQUEUE_MESSAGES)
        if state.outstanding is not None:
            return None
        # A rolled message was just appended to the queue.
        if more or (self.enqueue_behind and state.enqueued + state.dequeued > before):
            return 0.0
        config = state.config
        if config.timer_stop_enqueue or config.timer_stop_dequeue:
            return _STOPPED_S
        if not state.wheel.is_open or state.latest_ms < state.progress.read_ms:
            return None
        return max(0, state.now_slot_ms() + state.slot_ms - self._clock.wall_ms()) / 1000

    def _step_back(self, now_slot: int) -> None:
        """Follow the wall clock back: it is before the slot that would be delivered next."""
        state = self._state
        _log.warning("event=clock_stepped_back from=%d to=%d", state.progress.read_ms, now_slot)
        if state.latest_ms < now_slot:
            state.advance(replace(state.progress, read_ms=now_slot))
            return
        read_ms = state.progress.read_ms
        state.advance(state.progress.stepped_back(state.log.end, now_slot))
        # Messages of these slots are delivered and do not wait.
        time_ms = state.wheel.next_used(now_slot, read_ms)
        while time_ms < read_ms:
            slot = state.wheel.get(time_ms)
            assert slot is not None
            state.wheel.put(time_ms, slot.first, slot.last, 0)
            time_ms = state.wheel.next_used(time_ms + state.slot_ms, read_ms)

    def pause(self) -> None:
        """Abandon the delivery in flight.  Later turns repeat it, so messages may arrive twice."""
        self._state.cancel()

    def remove_expired(self) -> None:
        """Remove files of the timer log whose messages have expired.  Raises `DiskFailed`."""
        store = self._store
        oldest = store.entry(TIMER_TOPIC, 0, store.min_offset(TIMER_TOPIC, 0))
        self._state.log.remove_expired(self._store.wrote_offset if oldest is None else oldest[0])

    # The checkpoint

    def prepare_flush(self) -> TimerFlush | None:
        """Return what a flush would write; None if nothing changed.  Call `flushed` when it is written."""
        state = self._state
        settled = state.unflushed.settle(self._store.flushed_offset)
        if settled == self._saved:
            return None
        if not self._is_following:
            self._version = replace(
                self._version, counter=self._version.counter + 1, timestamp_ms=self._clock.wall_ms()
            )
        start = 0 if self._saved is None else self._saved.log_position
        files = state.log.files_between(start, settled.log_position)
        checkpoint = TimerCheckpoint(settled, self._version)
        return TimerFlush(self._store.disk, self._path, state.wheel, files, checkpoint)

    def flushed(self, flush: TimerFlush) -> None:
        """Note that `flush` is on the disk."""
        self._saved = flush.checkpoint.progress

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """Return the checkpoint in the file, or the first one to write: never more than is on the disk.

        During a rebuild, or while another store is followed, it counts what was delivered before, not what has entered
        since.
        """
        progress = self._saved or self._state.unflushed.saveable
        told = replace(progress, queue_offset=max(progress.queue_offset, progress.rebuild_until))
        return TimerCheckpoint(told, self._version)

    # Figures

    def count_at(self, slot_ms: int) -> int:
        """Return the number of messages that wait in the slot of a time."""
        slot = self._state.wheel.get(slot_ms)
        return 0 if slot is None else slot.messages

    def count_between(self, from_ms: int, to_ms: int) -> int:
        """Return the number of messages that wait for times in ``[from_ms, to_ms)``."""
        return self._state.wheel.count_between(from_ms, to_ms)

    @property
    def waiting(self) -> int:
        """Number of messages in the wheel."""
        return max(0, self._state.waiting)

    @property
    def enqueued(self) -> int:
        """Number of messages taken from the topic since the start."""
        return self._state.enqueued

    @property
    def dequeued(self) -> int:
        """Number of messages delivered or rolled since the start."""
        return self._state.dequeued

    @property
    def queue_offset(self) -> int:
        """Queue offset of the next message to enter the wheel."""
        return self._state.progress.queue_offset

    @property
    def enqueue_behind(self) -> int:
        """Number of messages that have not yet entered the wheel."""
        return max(0, self._store.max_offset(TIMER_TOPIC, 0) - self.queue_offset)

    @property
    def dequeue_behind_ms(self) -> int:
        """Age, ms, of the slot to deliver next; 0 if nothing waits."""
        state = self._state
        if not state.wheel.is_open or state.latest_ms < state.progress.read_ms:
            return 0
        return max(0, self._clock.wall_ms() - state.progress.read_ms)

    def count_by_topic_hash(self) -> dict[int, int]:
        """Return the number of waiting messages by the hash of their real topic, counted in the timer log."""
        state = self._state
        read_ms = state.progress.read_ms
        oldest = state.wheel.oldest_position(read_ms)
        counts: dict[int, int] = {}
        if oldest is None:
            return counts
        for begin, units in state.log.units(oldest, state.log.end):
            del begin
            due = units["write_time"].astype(np.int64) + units["delay"]
            chosen = units[due >= read_ms]
            weights = np.where(chosen["magic"] & DELETE, -1, 1)
            hashes, which = np.unique(chosen["topic_hash"].astype(np.int64), return_inverse=True)
            for value, count in zip(hashes.tolist(), np.bincount(which, weights).tolist(), strict=True):
                counts[value] = counts.get(value, 0) + int(count)
        return counts
