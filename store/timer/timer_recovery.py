"""Recovery of wheel and timer log: makes them agree after a stop or a crash.

The checkpoint names a position of the timer log.  Before it the wheel, the timer log, and the records that its units
point at were on the disk.  After it the log is trusted while units follow each other and their records exist, and the
wheel is corrected by those units.  Slots that reach further than the log are corrected by walking it from their first
unit.  If the log ends before the checkpoint's position, or the wheel belongs to another log, both are rebuilt from the
queue of rmq_sys_wheel_timer, which holds all that they hold.
Source: RocketMQ 5.3.3, `TimerMessageStore.recover`, `recoverAndRevise`, `reviseQueueOffset`, `TimerWheel.checkPhyPos`.
"""

import itertools
import logging
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.common.errors import CorruptRecord
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.message_store import MessageStore
from store.record.record import Record, decode
from store.timer.timer_log import DELETE, UNIT_BYTES, TimerLog
from store.timer.timer_progress import Progress, TimerCheckpoint
from store.timer.timer_wheel import TimerWheel

_log = logging.getLogger(__name__)

# A wheel that reaches this far from now was written with another precision.
_FAR_MS: Final = 60 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Recovered:
    """Facts about units after the checkpoint: their messages entered the wheel and need not enter again."""

    progress: Progress
    known_offsets: frozenset[int] = frozenset()
    known_until: int = 0  # queue offset
    needs_rebuild: bool = False


def recover(
    store: MessageStore, wheel: TimerWheel, log: TimerLog, checkpoint: TimerCheckpoint, now_ms: int
) -> Recovered:
    """Correct wheel and log.  Return where to continue.  Raises `StoreError`.

    If the result says `needs_rebuild`, nothing was changed and both must be rebuilt.
    """
    progress = checkpoint.progress
    fits = log.load()
    if not wheel.open():
        # Before the topic's first message neither exists.
        is_new = fits and log.end == 0 and progress.log_position == 0
        return Recovered(progress, needs_rebuild=not is_new)
    start = max(progress.log_position, log.first)
    end = log.valid_end(start)
    if not fits or end < progress.log_position or not _belongs(wheel, log, progress, now_ms):
        _log.warning(
            "event=timer_files_rejected log_end=%d checkpoint=%d wheel=%d", end, progress.log_position,
            wheel.latest_ms(),
        )  # fmt: skip
        return Recovered(progress, needs_rebuild=True)
    end = _with_records(store, log, start, end)
    log.cut(end)
    if checkpoint.is_own:
        progress = _stepped_back(log, progress, start, end, wheel.slot_ms)
    _revise_wheel(wheel, log, progress.read_ms, start, end)
    # Otherwise a second crash could restore what was just corrected, under units written after it.
    for file in log.files_between(start, end + 1):
        file.sync()
    wheel.sync()
    return _known(store, log, progress, start, end)


def _belongs(wheel: TimerWheel, log: TimerLog, progress: Progress, now_ms: int) -> bool:
    """Return whether the wheel belongs to the log before the checkpoint and has this precision."""
    latest = wheel.latest_ms()
    if latest and abs(latest - now_ms) > _FAR_MS:
        return False
    before = log.position_before(progress.log_position)
    if before is None:
        return True
    unit = log.unit(before)
    if unit is None:
        return False
    slot = wheel.get(unit.time_ms)
    return unit.time_ms < progress.read_ms or (slot is not None and slot.last >= before)


def _with_records(store: MessageStore, log: TimerLog, start: int, end: int) -> int:
    """Return the end of the units whose records are in the CommitLog."""
    for begin, units in log.units(start, end):
        beyond = np.flatnonzero(units["physical_offset"] + units["record_size"] > store.wrote_offset)
        if len(beyond):
            end = begin + int(beyond[0]) * UNIT_BYTES
            break
        # A crash may have torn the last unit.
    while end - UNIT_BYTES >= start:
        unit = log.unit(end - UNIT_BYTES)
        if unit is None or _timer_record(store, unit.physical_offset, unit.record_bytes) is not None:
            break
        end -= UNIT_BYTES
    return end


def _timer_record(store: MessageStore, physical_offset: int, record_bytes: int) -> Record | None:
    try:
        view = store.record_at(physical_offset, record_bytes)
        record = "" if view is None else decode(view, check_crc=False)
    except CorruptRecord:
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None


def _stepped_back(log: TimerLog, progress: Progress, start: int, end: int, slot_ms: int) -> Progress:
    """Return the progress after a step back of the clock, which units of earlier slots after the checkpoint prove."""
    earliest = progress.read_ms
    for _, units in log.units(start, end):
        number = (units["write_time"].astype(np.int64) + units["delay"]) // slot_ms
        earliest = min(earliest, int(number.min()) * slot_ms)
    return progress if earliest == progress.read_ms else progress.stepped_back(start, earliest)


def _revise_wheel(wheel: TimerWheel, log: TimerLog, from_ms: int, start: int, end: int) -> None:
    """Make the slots from `from_ms` on agree with the log, whose units ``[start, end)`` are new to the wheel.

    A slot on the disk may lack new units, or name units that are lost.
    """
    seen: set[int] = set()
    for _, units in log.units(start, end):
        number = (units["write_time"].astype(np.int64) + units["delay"]) // wheel.slot_ms
        seen.update(np.unique(number).tolist())
    for time_ms in wheel.reaching(0, end):
        if time_ms < from_ms:
            # The clock was behind when these units were lost, and may be again.
            wheel.free(time_ms)
    # Slots whose newest units are lost and that have no other new ones.
    lost = {
        time_ms: slot
        for time_ms, slot in wheel.reaching(from_ms, start).items()
        if time_ms // wheel.slot_ms not in seen
    }
    if lost:
        oldest = min(slot.first for slot in lost.values())
        for time_ms in lost:
            wheel.free(time_ms)
        _log.warning("event=timer_slots_corrected slots=%d from=%d to=%d", len(lost), oldest, start)
        revise(wheel, log, oldest, start, from_ms, start, frozenset(lost))
    revise(wheel, log, start, end, from_ms, start)


def revise(
    wheel: TimerWheel,
    log: TimerLog,
    begin: int,
    end: int,
    from_ms: int,
    trusted: int,
    only: frozenset[int] | None = None,
) -> None:
    """Make the slots from `from_ms` on, or the slots `only`, agree with the units ``[begin, end)``.

    Positions from `trusted` on that a slot holds are ignored.
    """
    for chunk_at, units in log.units(begin, end):
        number = (units["write_time"].astype(np.int64) + units["delay"]) // wheel.slot_ms
        chosen = np.flatnonzero(number >= from_ms // wheel.slot_ms)
        order = chosen[np.argsort(number[chosen], kind="stable")]
        bounds = np.flatnonzero(np.diff(number[order], prepend=-1, append=-1)).tolist()
        positions = chunk_at + order * UNIT_BYTES
        weights = np.where(units["magic"][order] & DELETE, -1, 1)
        for low, high in itertools.pairwise(bounds):
            time_ms = int(number[order[low]]) * wheel.slot_ms
            if only is None or time_ms in only:
                _merge(wheel, time_ms, positions[low:high], weights[low:high], max(trusted, chunk_at))


def _merge(
    wheel: TimerWheel,
    time_ms: int,
    positions: npt.NDArray[np.int64],
    weights: npt.NDArray[np.int64],
    trusted: int,
) -> None:
    """Set a slot to the units at `positions`, which increase, and its older ones before `trusted`."""
    slot = wheel.get(time_ms)
    first, last = int(positions[0]), int(positions[-1])
    if slot is None or slot.first >= trusted:
        wheel.put(time_ms, first, last, int(weights.sum()))
    elif slot.last < trusted:
        wheel.put(time_ms, slot.first, last, slot.messages + int(weights.sum()))
    else:
        # Where units are lost the count is approximate; only people read it.
        added = int(weights[np.searchsorted(positions, slot.last, side="right") :].sum())
        wheel.put(time_ms, slot.first, last, slot.messages + added)


def _known(store: MessageStore, log: TimerLog, progress: Progress, start: int, end: int) -> Recovered:
    """Return what the units ``[start, end)`` prove about queue offsets after that of the checkpoint."""
    offsets: set[int] = set()
    last: tuple[int, int] | None = None
    for _, units in log.units(start, end):
        offsets.update(units["physical_offset"].tolist())
        last = int(units["physical_offset"][-1]), int(units["record_size"][-1])
    record = None if last is None else _timer_record(store, *last)
    until = 0 if record is None else record.queue_offset + 1
    _log.info(
        "event=timer_recovered read_ms=%d queue_offset=%d known_until=%d log_end=%d", progress.read_ms,
        progress.queue_offset, until, end,
    )  # fmt: skip
    return Recovered(progress, frozenset(offsets) if until > progress.queue_offset else frozenset(), until)
