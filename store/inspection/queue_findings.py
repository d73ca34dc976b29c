"""Findings about ConsumeQueues."""

from typing import Final

from sprocket.remoting.message.record import HEAD
from sprocket.remoting.message.topic_names import is_light
from store.inspection.finding import Severity
from store.inspection.inspected_store import InspectedStore
from store.inspection.queue_inspection import UNIT, Kind, LogBounds, QueueInspection
from store.inspection.queue_table_inspection import end_entry
from store.inspection.small_files import builds_all_queues
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES
from store.queue.consume_queue import BLANK_SIZE

_REBUILD: Final = "rebuild the queue from the log"
_BLANK: Final = "make the entry blank; the queue's offsets stay"
# Disagreements of one queue to report one by one.
_TOLD: Final = 20
_TEXTS: Final = {
    Kind.MISSING: "{count} records from queue offset {offset} on have no entry; the first is at {place}",
    Kind.WRONG: "{count} entries from {offset} on do not point to their record; the first is at {place}",
    Kind.BLANKED: "{count} entries from {offset} on are blank, but their records are there",
    Kind.TAGS: "{count} entries from {offset} on have another tags code than their record",
    Kind.LOST: "{count} messages from queue offset {offset} on are in the log's damage at physical offset {place}",
    Kind.ORPHAN: "{count} entries from {offset} on point to {place}, where no record of theirs begins",
    Kind.BEYOND: "{count} entries from {offset} on point after the log's end, the first to {place}",
    Kind.HOLE: "{count} entries from {offset} on are zeros between others",
}


def describe(store: InspectedStore, topics: set[str] | None) -> None:
    """Add findings about every queue.  `topics` are those that the broker knows; None if unknown."""
    findings = store.findings
    for stray in store.queues.strays:
        findings.add("queue-stray", Severity.NOTE, store.relative(stray), "is not a queue; left alone")
    for queue in store.queues:
        _describe_files(store, queue)
        _describe_disagreements(store, queue)
        for place, count in queue.misplaced:
            text = f"{count} records of {queue.topic} queue {queue.queue_id} from {place} on say queue offsets"
            text += " that do not follow the one before: no consumer sees them"
            path, position = store.relative(store.log.path_at(place)), place % store.log.file_bytes
            findings.add("record-misplaced", Severity.NOTE, path, text, "", position)
    is_building = not store.is_running and builds_all_queues(store.root)
    unbuilt = 0
    for (topic, queue_id), queue in store.queues.missing.items():
        count = queue.next_offset - queue.first
        path = store.relative(queue.files.directory)
        if topics is not None and topic not in topics:
            text = f"is not there; the log has {count} records of it, but the broker does not know the topic"
            findings.add("queue-deleted", Severity.NOTE, path, text)
        elif is_building:
            unbuilt += 1
        else:
            text = f"is missing: the log has {count} records of topic {topic} queue {queue_id}"
            findings.add("queue-absent", Severity.WRONG, path, text, _REBUILD)
    if unbuilt:
        text = f"{unbuilt} queues are not built yet: the first start of a broker builds all queues and the index"
        findings.add("queue-unbuilt", Severity.NOTE, "consumequeue", text)
    for batch in store.batch_queues:
        if batch.bad:
            path = store.relative(batch.files.path_at(batch.first_bad * BATCH_CONSUME_QUEUE_UNIT_BYTES))
            text = f"{batch.bad} units do not agree with the log, the first is unit {batch.first_bad}"
            findings.add("batch-queue", Severity.WRONG, path, text, _REBUILD)


def needs_new_files(queue: QueueInspection) -> bool:
    """Return whether a broker cannot open the queue's files."""
    files = queue.files
    return bool(files.wrong_size() or files.missing() or files.misplaced())


def _describe_files(store: InspectedStore, queue: QueueInspection) -> None:
    files, findings = queue.files, store.findings
    for name in files.strays:
        findings.add("queue-stray", Severity.NOTE, store.relative(files.directory / name), "is not a file of a queue")
    for part in files.wrong_size():
        text = f"has {part.size_bytes} bytes of {files.file_bytes}"
        findings.add("queue-size", Severity.WRONG, store.relative(part.path), text, _REBUILD, part.size_bytes)
    for offset in files.missing():
        findings.add("queue-file", Severity.WRONG, store.relative(files.path_at(offset)), "is missing", _REBUILD)
    for part in files.misplaced():
        text = f"its start is not a multiple of the file size {files.file_bytes}"
        findings.add("queue-name", Severity.WRONG, store.relative(part.path), text, _REBUILD)


def _describe_disagreements(store: InspectedStore, queue: QueueInspection) -> None:
    for number, found in enumerate(queue.disagreements):
        is_lost = found.kind is Kind.LOST
        if number >= _TOLD and not is_lost:
            queue.unlisted += sum(rest.count for rest in queue.disagreements[number:])
            break
        text = _TEXTS[found.kind].format(count=found.count, offset=found.offset, place=found.physical_offset)
        if not store.was_clean and found.kind in (Kind.MISSING, Kind.BEYOND):
            text += "; the last run was not shut down cleanly, and a broker's start repairs it"
        position = found.offset * UNIT % queue.files.file_bytes if queue.files.file_bytes else 0
        store.findings.add(
            f"queue-{found.kind}", Severity.LOSS if is_lost else Severity.WRONG,
            store.relative(queue.files.path_at(found.offset * UNIT)),
            f"{queue.topic} queue {queue.queue_id}: {text}", _BLANK if is_lost else _REBUILD,
            position, found.count * UNIT,
        )  # fmt: skip
    if queue.unlisted:
        text = f"{queue.topic} queue {queue.queue_id}: {queue.unlisted} more entries disagree with the log"
        store.findings.add("queue-more", Severity.WRONG, store.relative(queue.files.directory), text, _REBUILD)


def check_ends(store: InspectedStore, bounds: LogBounds) -> None:
    """Quick check: the last entry of each queue points to a record that names the same queue and queue offset."""
    for queue in store.queues:
        _describe_files(store, queue)
        last = end_entry(queue)
        if last is None or is_light(queue.topic):
            continue
        offset, place, size, _ = last
        if size == BLANK_SIZE or place < bounds.start or (store.is_running and place >= bounds.end):
            continue
        path = store.relative(queue.files.path_at(offset * UNIT))
        position = offset * UNIT % queue.files.file_bytes if queue.files.file_bytes else 0
        head = store.log.bytes_at(place, HEAD.size) if place < bounds.end else bytes(HEAD.size)
        fields = HEAD.unpack(head)
        if (fields[0], fields[3], fields[5], fields[6]) != (size, queue.queue_id, offset, place):
            text = f"{queue.topic} queue {queue.queue_id}: its last entry, {offset}, points to {place}: no record of it"
            store.findings.add("queue-end", Severity.WRONG, path, text, _REBUILD, position, UNIT)
