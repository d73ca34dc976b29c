"""CommitLog segment for readers: its bytes, the walk over its records, and resynchronisation.

A segment is a chain of records (`sprocket.remoting.message.record`), each at the byte where the previous one ends.  A
blank record ends the chain or, in the file that is being written, zeros do.  Bytes count as a record only if the magic
is V1 or V2 and `physical_offset` is their own position.

The walk is the store's (`store.scan.log_walk`): it never reads bytes of a body that imitate a record.
"""

import mmap
import os
import re
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SysFlag,
    record_size,
)
from store.layout import FILE_NAME_DIGITS, HEAD, MAGIC_BLANK, RECORD_FIXED_DTYPE, STORE_TIMESTAMP, TAIL
from store.scan.log_walk import walk as follow_chain

Positions = npt.NDArray[np.int64]

_MAGIC_AT: Final = 4
# Common bytes of the two magics: one search finds both.
_MAGIC_PREFIX: Final = struct.pack(">i", MAGIC_V1)[:3]
assert struct.pack(">i", MAGIC_V2).startswith(_MAGIC_PREFIX)
_MAGIC: Final = re.compile(re.escape(_MAGIC_PREFIX))
# Both as a little-endian processor reads them: comparisons need no byte swap.
_MAGIC_NUMBERS: Final = [int.from_bytes(struct.pack(">i", magic), "little") for magic in (MAGIC_V1, MAGIC_V2)]
PAGE_BYTES: Final = mmap.ALLOCATIONGRANULARITY
# A size above this is damage: no memory is allocated for it.
MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
# Distance after damage in the last segment within which a later record is searched for.
RESYNC_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class Walk:
    """Positions of the records in a range, and the first position that does not continue the chain."""

    positions: Positions
    stop: int


@dataclass(frozen=True)
class RecordSpan:
    """Parts of one record, as positions in its segment."""

    size: int
    body: slice
    topic: slice
    properties: slice


class WindowMemory:
    """Memory for the windows of one reader: each window overwrites the previous one.

    Reads into memory that is in the processor's cache cost a third of a mapping, where every page is a fault.  Besides,
    an access to a mapped file that was shortened kills the process.
    """

    def __init__(self, size_bytes: int) -> None:
        # A mapping begins at a page, as the bytes to read do: the system copies aligned pages several times faster.
        # Private: a forked process has its own.
        self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a system without large pages
            self._memory.madvise(mmap.MADV_HUGEPAGE)

    def read(self, descriptor: int, begin: int, size_bytes: int) -> memoryview:
        """Return up to `size_bytes` of the file from `begin` on; valid until the next call.

        A larger read gets memory of its own.
        """
        fits = size_bytes <= len(self._memory)
        view = memoryview(self._memory if fits else mmap.mmap(-1, size_bytes))[:size_bytes]
        held = 0
        while held < size_bytes:  # one call reads at most 2 GiB, less if the file has become shorter
            count = os.preadv(descriptor, [view[held:]], begin + held)
            if not count:
                break
            held += count
        return view[:held]


class Segment:
    """One segment, or a window of it.  Positions are bytes from the start of `data`, whose physical offset is `start`.

    By default the whole file is mapped.  Raises OSError if the file cannot be opened.  A file that the broker deletes
    stays readable until `close`.
    """

    def __init__(self, path: Path, start: int) -> None:
        """`start` is the physical offset of the file's first byte."""
        self.path = path
        self.start = start
        with path.open("rb") as file:
            self.file_end = start + os.fstat(file.fileno()).st_size
            self.data: mmap.mmap | memoryview | bytes = _mapped(file.fileno(), 0, self.file_end - start)
        self.size = len(self.data)

    @classmethod
    def window(
        cls, path: Path, descriptor: int, file_start: int, begin: int, size_bytes: int, memory: WindowMemory | None
    ) -> Self:
        """Return about `size_bytes` of an open file from physical offset `begin` on, or as many as exist.

        The window may begin up to a page earlier.  The bytes are read into `memory` and valid until the next window;
        without `memory` they are mapped.
        """
        window = cls.__new__(cls)
        window.path = path
        window.file_end = file_start + os.fstat(descriptor).st_size
        skip = (begin - file_start) // PAGE_BYTES * PAGE_BYTES
        window.start = file_start + skip
        size = max(0, min(begin + size_bytes, window.file_end) - window.start)
        window.data = _mapped(descriptor, skip, size) if memory is None else memory.read(descriptor, skip, size)
        window.size = len(window.data)
        return window

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file once no view of it is left."""
        if isinstance(self.data, mmap.mmap):
            try:
                self.data.close()
            except BufferError:
                self.data = b""

    def header(self, position: int) -> tuple[int, int, int]:
        """Return (total_size, magic, physical_offset) at `position`, zeros if the file ends before."""
        if position + HEAD.size > self.size:
            return 0, 0, 0
        fields = HEAD.unpack_from(self.data, position)
        return fields[0], fields[1], fields[6]

    def span(self, position: int) -> RecordSpan | None:
        """Return the record at `position` if it is complete and its lengths add up, else None."""
        size, magic, physical_offset = self.header(position)
        if magic not in (MAGIC_V1, MAGIC_V2) or physical_offset != self.start + position:
            return None
        if size < MIN_RECORD_BYTES or position + size > self.size:
            return None
        sys_flag: int = HEAD.unpack_from(self.data, position)[7]
        body_at = position + record_size(sys_flag & (SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6), 0, 0, 0, 0) - 2
        body_end = body_at + self._integer(body_at - 4, 4)
        version = 2 if magic == MAGIC_V2 else 1
        end = position + size
        if not body_at <= body_end <= end - version - 2:
            return None
        topic_at = body_end + version
        topic_end = topic_at + (self._integer(body_end, 2) if version == 2 else self.data[body_end])
        if not topic_at <= topic_end <= end - 2:
            return None
        properties = slice(topic_end + 2, end)
        if self._integer(topic_end, 2) != properties.stop - properties.start:
            return None
        return RecordSpan(size, slice(body_at, body_end), slice(topic_at, topic_end), properties)

    def is_whole(self, position: int) -> bool:
        """Return whether the record at `position` has been written to its last byte.

        Its lengths, the CRC of its body and its properties (text, so no zero bytes) must all hold.
        """
        span = self.span(position)
        if span is None:
            return False
        crc: int = HEAD.unpack_from(self.data, position)[2]
        return zlib.crc32(self.data[span.body]) & CRC_MASK == crc and 0 not in self.data[span.properties]

    def store_timestamp(self, position: int) -> int:
        """Return the store timestamp of the record at `position`, ms."""
        sys_flag: int = HEAD.unpack_from(self.data, position)[7]
        at = position + record_size(sys_flag & SysFlag.BORN_HOST_V6, 0, 0, 0, 0) - 2
        value: int = STORE_TIMESTAMP.unpack_from(self.data, at - TAIL.size - 8 - STORE_TIMESTAMP.size)[0]
        return value

    def resync(self, position: int, end: int) -> int | None:
        """Return the first position in [`position`, `end`) where a record begins, found by its magic."""
        limit = min(end + _MAGIC_AT + len(_MAGIC_PREFIX), self.size)
        found = _MAGIC.search(self.data, position + _MAGIC_AT, limit)
        while found is not None:
            at = found.start() - _MAGIC_AT
            if self.span(at) is not None:
                return at
            found = _MAGIC.search(self.data, found.start() + 1, limit)
        return None

    def reaches_beyond(self, position: int) -> int:
        """Return the size of a record at `position` that exceeds this window but not the file, else 0.

        If the window ends within the record's fixed fields, return the size of those.
        """
        at, left = self.start + position, self.size - position
        if self.start + self.size >= self.file_end:
            return 0
        if left < HEAD.size:
            return HEAD.size if at + MIN_RECORD_BYTES <= self.file_end else 0
        size, magic, physical_offset = self.header(position)
        is_record = magic in (MAGIC_V1, MAGIC_V2) and physical_offset == at
        return size if is_record and left < size <= min(MAX_RECORD_BYTES, self.file_end - at) else 0

    def is_blank(self, position: int) -> bool:
        """Return whether only filling follows: a blank record up to the file's end, or too few bytes for a record."""
        left = self.file_end - self.start - position
        if left < BLANK_MIN_BYTES:
            return True
        size, magic = self._integer(position, 4), self._integer(position + _MAGIC_AT, 4)
        return magic == MAGIC_BLANK and size == left

    def walk(self, begin: int, end: int) -> Walk:
        """Return all records that begin in [`begin`, `end`); one must begin at `begin`."""
        end = min(end, self.size - BLANK_MIN_BYTES + 1)
        if begin >= end:
            return Walk(np.empty(0, np.int64), begin)
        positions = follow_chain(memoryview(self.data)[begin:], self.start + begin, end - begin)
        positions += begin
        magics = np.ndarray((self.size - 3 - _MAGIC_AT,), "<u4", self.data, _MAGIC_AT, (1,))[positions]
        is_record = (magics == _MAGIC_NUMBERS[0]) | (magics == _MAGIC_NUMBERS[1])
        # Each record ends where the next one begins, so only the last size has to be read.
        last = int(positions[-1])
        last_end = last + int.from_bytes(self.data[last : last + 4], "big")
        is_record[:-1] &= np.diff(positions) >= MIN_RECORD_BYTES
        is_record[-1] &= MIN_RECORD_BYTES <= last_end - last <= self.size - last
        if is_record.all():
            return Walk(positions, last_end)
        broken = int(np.argmin(is_record))
        return Walk(positions[:broken], int(positions[broken]))

    def _integer(self, position: int, size: int) -> int:
        return int.from_bytes(self.data[position : position + size], "big", signed=True)


def _mapped(descriptor: int, skip: int, size: int) -> mmap.mmap | bytes:
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ, offset=skip) if size else b""


def segment_paths(directory: Path) -> list[tuple[int, Path]]:
    """Return (physical offset of the first byte, file) of every segment in `directory`, in order.

    Files whose name is not 20 digits are not segments.  Raises OSError if the directory cannot be read.
    """
    names = (path for path in directory.iterdir() if len(path.name) == FILE_NAME_DIGITS and path.name.isdecimal())
    return sorted((int(path.name), path) for path in names)


assert RECORD_FIXED_DTYPE.itemsize == HEAD.size
