"""Plan of a repair: from the findings of an inspection to actions.  Pure: it changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.flush.checkpoint import Checkpoint
from store.inspection.index_inspection import UNIT_BYTES
from store.inspection.index_shape import UNITS_PER_SLOT
from store.inspection.queue_findings import needs_new_files
from store.inspection.queue_inspection import UNIT, Kind, QueueInspection
from store.inspection.small_files import json_of, topic_names
from store.inspection.store_inspection import StoreInspection
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES, BATCH_CONSUME_QUEUE_UNITS_PER_FILE
from store.queue.consume_queue import BLANK_SIZE, ENTRY
from store.repair.filler import closing_blank
from store.repair.repair_journal import (
    Action,
    Create,
    Fill,
    Move,
    RebuildBatchQueues,
    RebuildIndex,
    RebuildQueues,
    Resize,
    Restore,
    Write,
    Zero,
)

_DEFAULT_SLOTS: Final = 5_000_000


def plan(store: StoreInspection, *, rebuild_queues: str | None = None, rebuild_index: bool = False) -> list[Action]:
    """Return the actions in the order in which to perform them.

    `rebuild_queues` names a topic whose queues are rebuilt whatever their state, or ``*`` for all.
    """
    actions = [*_segments(store), *_gaps(store), *_tail(store)]
    rebuilt = list(_queues(store, rebuild_queues))
    actions += rebuilt
    if store.index.is_damaged or rebuild_index:
        actions += _index(store)
    batches = list(_batch_queues(store, rebuild_queues))
    actions += batches
    rebuilt += batches
    for name in store.own_files_to_drop(is_log_shorter=store.tail.end > store.tail.start, are_queues_new=bool(rebuilt)):
        actions.append(Move(name, "the broker writes a new one"))
    return [*actions, *_checkpoint(store), *_config(store.root, store.config)]


def _segments(store: StoreInspection) -> Iterator[Action]:
    log = store.log
    last_start = log.parts[-1].start if log.parts else 0
    for part in log.wrong_size():
        path = store.relative(part.path)
        if part.start % log.file_bytes if log.file_bytes else True:
            continue
        if not part.size_bytes and part.start == last_start:
            yield Move(path, "an empty file at the log's end")
        else:
            yield Resize(path, log.file_bytes, part.size_bytes, "a segment has the size of the others")
    for gap in store.gaps:
        if gap.is_missing and gap.start % log.file_bytes == 0:
            path = store.relative(log.path_at(gap.start))
            yield Create(path, log.file_bytes, closing_blank(log.file_bytes), "a segment was missing")


def _gaps(store: StoreInspection) -> Iterator[Action]:
    log, timestamp = store.log, store.figures.last_store_timestamp
    for gap in store.gaps:
        path, position = store.relative(log.path_at(gap.start)), gap.start % log.file_bytes
        size = gap.end - gap.start
        if gap.is_missing:
            continue
        if not gap.is_closed:
            blank = closing_blank(size)
            if blank:
                yield Write(path, position, blank, f"{size} damaged bytes up to the segment's end: {gap.reason}")
        elif size >= MIN_RECORD_BYTES:
            yield Fill(path, position, size, gap.start, timestamp, f"damage: {gap.reason}")


def _tail(store: StoreInspection) -> Iterator[Action]:
    """Zero what follows the last record, segment by segment."""
    log, tail = store.log, store.tail
    removed = {part.start for part in log.wrong_size() if not part.size_bytes}
    for part in log.parts:
        start, end = max(part.start, tail.start), min(tail.end, part.start + min(part.size_bytes, log.file_bytes))
        if start < end and part.start not in removed:
            reason = f"no record follows the log's last one: {tail.reason}"
            yield Zero(store.relative(part.path), start - part.start, end - start, reason)


def _queues(store: StoreInspection, wanted: str | None) -> Iterator[Action]:
    rebuilt: list[QueueInspection] = []
    for queue in store.queues:
        is_asked = wanted in ("*", queue.topic)
        has_records = queue.next_offset >= 0
        if has_records and (is_asked or queue.must_be_rebuilt or needs_new_files(queue)):
            rebuilt.append(queue)
        else:
            yield from _entries_in_place(store, queue)
    topics = topic_names(store.root)
    for (topic, _), queue in store.queues.missing.items():
        if topics is None or topic in topics or wanted == topic:
            rebuilt.append(queue)
    for queue in rebuilt:
        if queue.files.parts or queue.files.strays:
            yield Move(store.relative(queue.files.directory), "the queue is rebuilt")
    if rebuilt:
        blanks = [(queue.topic, queue.queue_id, offset) for queue in rebuilt for offset in queue.lost_offsets()]
        skipped = [place for queue in rebuilt for place in queue.misplaced]
        names = [(queue.topic, queue.queue_id) for queue in rebuilt]
        size = store.queues.file_bytes or 300_000 * UNIT
        yield RebuildQueues(names, size, blanks, skipped, "queues and log disagree" if not wanted else "as asked")


def _batch_queues(store: StoreInspection, wanted: str | None) -> Iterator[Action]:
    rebuilt = [queue for queue in store.batch_queues if queue.bad or wanted in ("*", queue.topic)]
    for queue in rebuilt:
        if queue.files.parts or queue.files.strays:
            yield Move(store.relative(queue.files.directory), "the queue is rebuilt")
    if rebuilt:
        names = [(queue.topic, queue.queue_id) for queue in rebuilt]
        size = store.batch_queues.file_bytes or BATCH_CONSUME_QUEUE_UNITS_PER_FILE * BATCH_CONSUME_QUEUE_UNIT_BYTES
        yield RebuildBatchQueues(names, size, "queues and log disagree" if not wanted else "as asked")


def _entries_in_place(store: StoreInspection, queue: QueueInspection) -> Iterator[Action]:
    """Correct entries that need no walk of the log: those of lost messages, and those after the end."""
    files = queue.files
    # The start of an older segment, if one exists: RocketMQ then skips only the damaged segment.
    for found in queue.disagreements:
        for offset in range(found.offset, found.offset + found.count):
            position = offset * UNIT
            path, at = store.relative(files.path_at(position)), position % files.file_bytes
            if found.kind is Kind.BEYOND:
                yield Write(path, at, bytes(UNIT), "the entry points after the log's end")
            elif found.kind in (Kind.LOST, Kind.ORPHAN, Kind.HOLE):
                place = _blank_place(store, found.physical_offset)
                entry = ENTRY.pack(place, BLANK_SIZE, 0)
                yield Write(path, at, entry, f"{queue.topic} queue {queue.queue_id} offset {offset} is gone")


def _blank_place(store: StoreInspection, physical_offset: int) -> int:
    """Return the physical offset to write into a blank entry.

    For an entry that it cannot read, RocketMQ skips the rest of the segment that the entry names
    (`DefaultMessageStore.getMessage`, `rollNextFile`).  The segment before the damaged one is already passed.
    """
    size = store.log.file_bytes
    return max(0, physical_offset - physical_offset % size - size) if size else 0


def _index(store: StoreInspection) -> Iterator[Action]:
    slots = store.shape.index_slots or _DEFAULT_SLOTS
    capacity = store.shape.index_units or UNITS_PER_SLOT * slots
    for file in store.index.files:
        slots, capacity = file.slot_count, file.capacity
    if (store.root / "index").is_dir():
        yield Move("index", "the index is rebuilt")
    yield RebuildIndex(slots, capacity, store.figures.start, "index and log disagree")


def _checkpoint(store: StoreInspection) -> Iterator[Action]:
    checkpoint = store.checkpoint
    if checkpoint is None or store.checkpoint_holds:
        return
    newest, end = store.figures.newest_store_timestamp, store.figures.end

    def clamped(value: int, limit: int) -> int:
        return value if 0 <= value <= limit else limit

    sane = Checkpoint(
        clamped(checkpoint.physic_msg_timestamp, newest),
        clamped(checkpoint.logics_msg_timestamp, newest),
        clamped(checkpoint.index_msg_timestamp, newest),
        checkpoint.master_flushed_offset,
        clamped(checkpoint.confirm_phy_offset, end),
    )
    yield Write("checkpoint", 0, sane.encode(), "it promised more than the log holds")


def _config(root: Path, readable: dict[str, bool]) -> Iterator[Action]:
    for name, is_good in readable.items():
        if is_good or name.endswith(".bak"):
            continue
        path = f"config/{name}"
        yield Move(path, "is not a JSON object")
        if readable.get(f"{name}.bak") and json_of(root / f"{path}.bak") is not None:
            yield Restore(path, f"{path}.bak", "the last good version")


assert UNIT == UNIT_BYTES
