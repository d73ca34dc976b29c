"""A CommitLog segment as a reader sees it: its bytes, the walk of its records, and resynchronisation.

A segment is a chain of records (`sprocket.remoting.message.record`), each at the byte where the one before it ends,
closed by a blank record or, in the file that is being written, by zeros.  A record is taken for one only if
its magic is V1 or V2 and its `physical_offset` is its own position.

The walk itself is the store's (`store.record.log_walk`): bytes of a body that imitate a record are never read as one.
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
from store.record.log_walk import walk as follow_chain

Positions = npt.NDArray[np.int64]

_MAGIC_AT: Final = 4
# What the two magics share: one search finds both.
_MAGIC_PREFIX: Final = struct.pack(">i", MAGIC_V1)[:3]
assert struct.pack(">i", MAGIC_V2).startswith(_MAGIC_PREFIX)
_MAGIC: Final = re.compile(re.escape(_MAGIC_PREFIX))
# Both as a little-endian processor reads them: nothing has to be turned round to compare.
_MAGIC_NUMBERS: Final = [int.from_bytes(struct.pack(">i", magic), "little") for magic in (MAGIC_V1, MAGIC_V2)]
PAGE_BYTES: Final = mmap.ALLOCATIONGRANULARITY
# A size above this is damage: it is not what anything is allocated by.
MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
# How far past a broken place of the last segment a later record is looked for.
RESYNC_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class Walk:
    """Where the records of a range begin, and the first position that does not continue the chain."""

    positions: Positions
    stop: int


@dataclass(frozen=True)
class RecordSpan:
    """The parts of one record, as positions in its segment."""

    size: int
    body: slice
    topic: slice
    properties: slice


class WindowMemory:
    """Memory for the windows of one reader, one after the other: each is read over the one before.

    What is read into memory that is in the processor's cache, and goes on from there, costs a third of what a mapping
    costs, whose every page is a fault, and a mapping of a file that becomes shorter kills who touches it.
    """

    def __init__(self, size_bytes: int) -> None:
        # A mapping begins with a page, as the bytes that are read do: from one page to another the system copies
        # several times as fast.  Private: a process that is forked has its own.
        self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a system without large pages
            self._memory.madvise(mmap.MADV_HUGEPAGE)

    def read(self, descriptor: int, begin: int, size_bytes: int) -> memoryview:
        """`size_bytes` of the file from `begin` on, or what there is of them; good until the next call.

        More than the memory holds gets memory of its own.
        """
        fits = size_bytes <= len(self._memory)
        view = memoryview(self._memory if fits else mmap.mmap(-1, size_bytes))[:size_bytes]
        held = 0
        while held < size_bytes:  # one call reads 2 GiB at most, and less where the file has become shorter
            count = os.preadv(descriptor, [view[held:]], begin + held)
            if not count:
                break
            held += count
        return view[:held]


class Segment:
    """One segment, or a window of it.  Positions are bytes from the begin of `data`, whose physical offset is `start`.

    By default the whole file is mapped.  Raises OSError if the file cannot be opened.  A file that the broker deletes
    meanwhile stays readable until `close`.
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
        """About `size_bytes` of an open file from physical offset `begin` on, or what there is of them.

        It may begin up to a page before.  The bytes are read into `memory`, and are good until the next window is;
        without, they are mapped.
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
        """Give the mapping back once no view of it is left; before that, it goes with the last view."""
        if isinstance(self.data, mmap.mmap):
            try:
                self.data.close()
            except BufferError:
                self.data = b""

    def header(self, position: int) -> tuple[int, int, int]:
        """(total_size, magic, physical_offset) at `position`; zeros where the file ends before."""
        if position + HEAD.size > self.size:
            return 0, 0, 0
        fields = HEAD.unpack_from(self.data, position)
        return fields[0], fields[1], fields[6]

    def span(self, position: int) -> RecordSpan | None:
        """The record at `position` if there is a whole one whose lengths add up, else None."""
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
        """Whether the record at `position` has been written to its last byte: its lengths, the CRC of its body
        and its properties (text, so never a zero byte) all hold."""
        span = self.span(position)
        if span is None:
            return False
        crc: int = HEAD.unpack_from(self.data, position)[2]
        return zlib.crc32(self.data[span.body]) & CRC_MASK == crc and 0 not in self.data[span.properties]

    def store_timestamp(self, position: int) -> int:
        """ms, of the record at `position`."""
        sys_flag: int = HEAD.unpack_from(self.data, position)[7]
        at = position + record_size(sys_flag & SysFlag.BORN_HOST_V6, 0, 0, 0, 0) - 2
        value: int = STORE_TIMESTAMP.unpack_from(self.data, at - TAIL.size - 8 - STORE_TIMESTAMP.size)[0]
        return value

    def resync(self, position: int, end: int) -> int | None:
        """The first position in [`position`, `end`) where a record begins, found by its magic."""
        limit = min(end + _MAGIC_AT + len(_MAGIC_PREFIX), self.size)
        found = _MAGIC.search(self.data, position + _MAGIC_AT, limit)
        while found is not None:
            at = found.start() - _MAGIC_AT
            if self.span(at) is not None:
                return at
            found = _MAGIC.search(self.data, found.start() + 1, limit)
        return None

    def reaches_beyond(self, position: int) -> int:
        """Bytes of a record at `position` that does not end in this window but can end in the file; else 0.

        Where the window ends before the record's fixed fields, those.
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
        """Whether nothing but filling follows: a blank record to the file's end, or too few bytes for one."""
        left = self.file_end - self.start - position
        if left < BLANK_MIN_BYTES:
            return True
        size, magic = self._integer(position, 4), self._integer(position + _MAGIC_AT, 4)
        return magic == MAGIC_BLANK and size == left

    def walk(self, begin: int, end: int) -> Walk:
        """All records that begin in [`begin`, `end`); one must begin at `begin`."""
        end = min(end, self.size - BLANK_MIN_BYTES + 1)
        if begin >= end:
            return Walk(np.empty(0, np.int64), begin)
        positions = follow_chain(memoryview(self.data)[begin:], self.start + begin, end - begin)
        positions += begin
        magics = np.ndarray((self.size - 3 - _MAGIC_AT,), "<u4", self.data, _MAGIC_AT, (1,))[positions]
        is_record = (magics == _MAGIC_NUMBERS[0]) | (magics == _MAGIC_NUMBERS[1])
        # Each position is where the record before it ends, so only the last size has to be read.
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
    """(physical offset of the first byte, file) of every segment in `directory`, in order.

    Files whose name is not 20 digits are not segments.  Raises OSError if the directory cannot be read.
    """
    names = (path for path in directory.iterdir() if len(path.name) == FILE_NAME_DIGITS and path.name.isdecimal())
    return sorted((int(path.name), path) for path in names)


assert RECORD_FIXED_DTYPE.itemsize == HEAD.size
