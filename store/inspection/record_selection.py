"""Selection of records from a log by offset, topic, queue, key, tag and time, with little decoding."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import find_last
from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.index.key_scan import keys_of
from store.inspection.file_sequence import FileSequence
from store.inspection.log_inspection import Gap, LogInspection, Progress, is_record
from store.inspection.queue_inspection import UNIT
from store.layout import CONSUME_QUEUE_DTYPE
from store.queue.consume_queue import BLANK_SIZE
from store.record.record import TAGS_NAME, Record, decode, store_timestamp_of
from store.scan.record_batch import RecordBatch
from store.scan.record_fields import store_timestamps


@dataclass(frozen=True)
class Selection:
    """Conditions on records; None matches all.  Ranges are half open; offsets are physical, times in ms."""

    from_offset: int | None = None
    to_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    key: str | None = None
    tag: str | None = None
    from_time: int | None = None
    to_time: int | None = None
    only_visible: bool = False

    def wants(self, record: Record) -> bool:
        """Return whether one record matches."""
        times = (self.from_time or 0) <= record.store_timestamp < (self.to_time or 1 << 63)
        place = (self.from_offset or 0) <= record.physical_offset < (self.to_offset or 1 << 63)
        return (
            times
            and place
            and (self.topic is None or record.topic == self.topic)
            and (self.queue_id is None or record.queue_id == self.queue_id)
            and (self.queue_offset is None or record.queue_offset == self.queue_offset)
            and (not self.only_visible or record.in_consume_queue)
            and (self.tag is None or java_text(find_last(bytes(record.properties), TAGS_NAME) or b"") == self.tag)
            and (self.key is None or self.key in keys_of(bytes(record.properties)))
        )


def select(
    log: FileSequence, selection: Selection, stop: int | None = None, progress: Progress = lambda size_bytes: None
) -> Iterator[Record | Gap]:
    """Yield the matching records in the order of the log, and the damage between them.  CRCs are checked."""
    start = max(selection.from_offset or 0, _start_by_time(log, selection.from_time))
    end = min(bound for bound in (stop, selection.to_offset, _end_by_time(log, selection.to_time), 1 << 63) if bound)
    begin = _record_at_or_before(log, start)
    # A key that is not UTF-8 in the log is shown with marks, and has other bytes.
    has_bytes = selection.key is not None and "\N{REPLACEMENT CHARACTER}" not in selection.key
    key = re.compile(re.escape(selection.key.encode())) if selection.key is not None and has_bytes else None
    for found in LogInspection(log, begin, end, progress=progress):
        if isinstance(found, Gap):
            yield found
        else:
            last = int(found.positions[-1] + found.sizes[-1])
            if key is None or key.search(found.data, int(found.positions[0]), last):
                yield from _of_batch(found, selection)


def _of_batch(batch: RecordBatch, selection: Selection) -> Iterator[Record]:
    for at in np.flatnonzero(_mask(batch, selection)).tolist():
        position = int(batch.positions[at])
        record = decode(batch.data[position : position + int(batch.sizes[at])], check_crc=False)
        if isinstance(record, Record) and selection.wants(record):
            yield record


def _mask(batch: RecordBatch, selection: Selection) -> npt.NDArray[np.bool_]:
    mask = np.ones(len(batch), np.bool_)
    if selection.topic is not None:
        wanted = [number for number, topic in enumerate(batch.topics) if topic == selection.topic]
        mask &= np.isin(batch.topic_index, wanted)
    if selection.queue_id is not None:
        mask &= batch.queue_ids == selection.queue_id
    if selection.queue_offset is not None:
        mask &= batch.queue_offsets == selection.queue_offset
    if selection.only_visible:
        mask &= batch.in_consume_queue
    if selection.from_time is not None or selection.to_time is not None:
        times = store_timestamps(batch)
        mask &= (times >= (selection.from_time or 0)) & (times < (selection.to_time or 1 << 62))
    return mask


def place_of(queue: FileSequence, queue_offset: int) -> tuple[int, int] | None:
    """Return (physical offset, size) in a ConsumeQueue's entry; None without one."""
    entry = np.frombuffer(queue.bytes_at(queue_offset * UNIT, UNIT), CONSUME_QUEUE_DTYPE)[0]
    physical_offset, size, _ = entry.item()
    return (physical_offset, size) if MIN_RECORD_BYTES <= size < BLANK_SIZE else None


def _record_at_or_before(log: FileSequence, offset: int) -> int:
    """Return where a walk that must meet the record at `offset` can begin: there, or at the segment's start."""
    if not log.file_bytes or offset <= log.first_offset:
        return log.first_offset
    return offset if is_record(log, offset) else offset - offset % log.file_bytes


def _first_time(log: FileSequence, start: int) -> int:
    head = log.bytes_at(start, MIN_RECORD_BYTES)
    return store_timestamp_of(memoryview(head)) if any(head[:8]) else 0


def _start_by_time(log: FileSequence, from_time: int | None) -> int:
    """Return the first segment that may hold a record of that time: the next one begins later."""
    start = log.first_offset
    if from_time is not None:
        for before, after in pairwise(log.parts):
            if 0 < _first_time(log, after.start) < from_time:
                start = after.start
            else:
                return max(start, before.start)
    return start


def _end_by_time(log: FileSequence, to_time: int | None) -> int:
    """Return where the segments begin that hold only later records, judged by the first record; 0 without any."""
    if to_time is not None:
        for part in log.parts:
            if _first_time(log, part.start) >= to_time:
                return part.start
    return 0
