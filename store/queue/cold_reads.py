"""Check of records that this process did not append, before they are served.

Bytes may change on a disk over time.  A record from before the store's start is compared with its CRC at each read.  A
record appended since then is in the page cache as it was written, and is not checked.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from sprocket.common.errors import CorruptRecord
from sprocket.remoting.message.record import CRC_MASK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, struct_of
from sprocket.remoting.message.topic_names import is_light
from store.log.commit_log import CommitLog
from store.queue.consume_queue import BLANK_SIZE
from store.queue.logic_queue import LogicQueue
from store.queue.multi_dispatch import places
from store.record.checksum import SEAL_BYTES, crc32, seals
from store.record.record import Record, decode

_log = logging.getLogger(__name__)
_HEAD: Final = struct_of("total_size", "magic", "queue_id", "queue_offset", "physical_offset")
_EMPTY: Final = memoryview(b"")
# Maximum damaged records that are logged and counted.
_MAX_KNOWN: Final = 4096


@lru_cache(maxsize=1024)
def _head_and_seal(size: int) -> Callable[[memoryview, int], tuple[Any, ...]]:
    """Return a function that gives the fields of `_HEAD` and the seal of a record of `size` bytes."""
    return struct.Struct(f"{_HEAD.format}{size - _HEAD.size - SEAL_BYTES}x{SEAL_BYTES}s").unpack_from


class ColdReads:
    """The check, and counts of its findings.  For the owner thread only."""

    def __init__(self, log: CommitLog, root: Path) -> None:
        self._log = log
        self._root = root
        # Records before this existed when the store started, and so did a queue's messages before its `cold_end`.
        self.end_offset = 0
        # Reads that found a damaged record.
        self.damaged_reads = 0
        self._known: set[int] = set()

    def begin(self, queues: Iterable[LogicQueue]) -> None:
        """Check everything that log and `queues` hold now when it is read."""
        self.end_offset = self._log.wrote_offset
        for queue in queues:
            queue.cold_end = queue.next_offset

    def good_prefix(
        self, queue: LogicQueue, starts: Sequence[int], physical_offsets: Sequence[int], sizes: Sequence[int]
    ) -> int:
        """Return the number of records of a read before the first damaged one.

        The i-th begins at queue offset ``starts[i]``.  Records that retention removed do not count as damaged.  Raises
        `CorruptRecord` if the first record is damaged.
        """
        if self._are_sealed(queue, starts, physical_offsets, sizes):
            return len(sizes)
        view, base, end = _EMPTY, 0, 0
        for number, (start, offset, size) in enumerate(zip(starts, physical_offsets, sizes, strict=True)):
            if not base <= offset < end:
                view, base, end = self._log.segment_at(offset)
            if base <= offset < end:
                at = offset - base
                reason = self._damage(view[at : at + max(size, 0)], size, offset, (queue, start))
            elif self._is_given_up(queue, start, offset):
                continue
            else:
                reason = f"the queue's entry names physical offset {offset}, where the log has nothing"
            if reason:
                error = self._met(
                    offset, reason, f"topic {queue.topic}, queue {queue.queue_id}, queue offset {start}, "
                )
                if not number:
                    raise error
                return number
        return len(sizes)

    def _are_sealed(
        self, queue: LogicQueue, starts: Sequence[int], physical_offsets: Sequence[int], sizes: Sequence[int]
    ) -> bool:
        """Return whether all are undamaged records of one segment, each with a seal.  All at once, for speed."""
        view, base, _ = self._log.segment_at(physical_offsets[0])
        if not view or min(sizes) < MIN_RECORD_BYTES:
            return False
        places = [(offset - base, size) for offset, size in zip(physical_offsets, sizes, strict=True)]
        try:
            found = [_head_and_seal(size)(view, at) for at, size in places]
        except (struct.error, OverflowError):
            return False  # one is outside the segment
        crcs = [crc32(view[at : at + size - SEAL_BYTES]) & CRC_MASK for at, size in places]
        expected = zip(
            sizes, repeat(queue.magic), repeat(queue.queue_id), starts, physical_offsets, seals(crcs), strict=False
        )
        return found == list(expected)

    def _is_given_up(self, queue: LogicQueue, start: int, physical_offset: int) -> bool:
        """Return whether retention removed the record at queue offset `start`, and all before it."""
        min_offset = self._log.min_offset
        if not 0 <= physical_offset < min_offset:
            return False
        before = queue.entry(start - 1) if start > queue.min_offset else None
        return before is None or before[0] < min_offset or before[1] == BLANK_SIZE

    @property
    def damaged_records(self) -> int:
        """Number of different damaged records found."""
        return len(self._known)

    def is_record(self, record: memoryview, physical_offset: int, *, is_sure: bool) -> bool:
        """Return whether the bytes at `physical_offset` are an undamaged record.

        `is_sure`: there must be a record.  Without it, the offset comes from a client and may be wrong.  Raises
        `CorruptRecord` for a damaged record from before the start.
        """
        if is_sure and physical_offset >= self.end_offset:
            return True
        reason = self._damage(record, len(record), physical_offset, None)
        if not reason:
            return True
        _, magic, _, _, own_offset = _HEAD.unpack_from(record)
        looks_so = magic in (MAGIC_V1, MAGIC_V2) and own_offset == physical_offset
        if is_sure or (looks_so and physical_offset < self.end_offset):
            raise self._met(physical_offset, reason, "")
        return False

    def _damage(self, view: memoryview, size: int, physical_offset: int, place: tuple[LogicQueue, int] | None) -> str:
        """Return the damage of a record; empty if it only has no seal.  `place`: queue and queue offset."""
        if size < MIN_RECORD_BYTES or len(view) != size:
            return f"the queue's entry gives it an impossible size, {size}"
        record = decode(view, require_seal=self._log.requires_seals)
        if isinstance(record, str):
            return record
        if record.physical_offset != physical_offset:
            return f"record says physical offset {record.physical_offset}"
        if place is not None and not _is_at(*place, record):
            return f"record says queue {record.queue_id} offset {record.queue_offset}"
        return ""

    def _met(self, physical_offset: int, reason: str, where: str) -> CorruptRecord:
        """Count a damaged record, and log it once."""
        self.damaged_reads += 1
        path = self._log.path_of(physical_offset)
        if physical_offset not in self._known and len(self._known) < _MAX_KNOWN:
            self._known.add(physical_offset)
            at = f"{where}file {path}"
            _log.error("event=record_damaged physical_offset=%d where=%r reason=%r", physical_offset, at, reason)
        text = (
            f"damaged, and not served: {reason} ({where}file {path}). `sprocket store check {self._root}` says what "
            f"else is, `sprocket store repair {self._root}` lets readers pass it"
        )
        return CorruptRecord(physical_offset, text)


def _is_at(queue: LogicQueue, offset: int, record: Record) -> bool:
    """Return whether `record` belongs at this offset of the queue, or of a light queue that it was dispatched to."""
    if (record.queue_id, record.queue_offset) == (queue.queue_id, offset):
        return True
    return is_light(queue.topic) and (queue.topic, offset) in places(bytes(record.properties))
