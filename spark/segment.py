"""A CommitLog segment as a reader sees it: a read-only mapping, the walk of its records, and resynchronisation.

A segment is a chain of records (`remoting.message_record`), each at the byte where the one before it ends,
closed by a blank record or, in the file that is being written, by zeros.  A record is taken for one only if
its magic is V1 or V2 and its `physical_offset` is its own position.

The walk itself is the store's (`store.log_walk`): bytes of a body that imitate a record are never read as one.
"""

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from remoting.message_record import BLANK_MIN_BYTES, CRC_MASK, MAGIC_V1, MAGIC_V2, SysFlag, record_size
from store.layout import FILE_NAME_DIGITS, HEAD, MAGIC_BLANK, RECORD_FIXED_DTYPE, STORE_TIMESTAMP, TAIL
from store.log_walk import walk as follow_chain

Positions = npt.NDArray[np.int64]

MIN_RECORD_BYTES: Final = record_size(0, 0, 0, 0)
_MAGIC_AT: Final = 4
# What the two magics share: one search finds both.
_MAGIC_PREFIX: Final = struct.pack(">i", MAGIC_V1)[:3]
assert struct.pack(">i", MAGIC_V2).startswith(_MAGIC_PREFIX)
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
            self.data: mmap.mmap | bytes = _mapped(file.fileno(), 0, self.file_end - start)
        self.size = len(self.data)

    @classmethod
    def window(
        cls, path: Path, descriptor: int, file_start: int, begin: int, size_bytes: int, *, is_copy: bool
    ) -> Self:
        """About `size_bytes` of an open file from physical offset `begin` on, or what there is of them.

        It may begin up to a page before.  With `is_copy` the bytes are read, not mapped: a mapping of a file that
        becomes shorter kills the process that touches it.
        """
        window = cls.__new__(cls)
        window.path = path
        window.file_end = file_start + os.fstat(descriptor).st_size
        skip = (begin - file_start) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        window.start = file_start + skip
        size = max(0, min(begin + size_bytes, window.file_end) - window.start)
        window.data = _read(descriptor, skip, size) if is_copy else _mapped(descriptor, skip, size)
        window.size = len(window.data)
        return window

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the mapping back once no view of it is left; before that, it goes with the last view."""
        self.__dict__.pop("magics", None)
        if isinstance(self.data, mmap.mmap):
            try:
                self.data.close()
            except BufferError:
                self.data = b""

    @cached_property
    def magics(self) -> npt.NDArray[np.int32]:
        """`magic` of a record that would begin at each position."""
        return np.ndarray((self.size - 3 - _MAGIC_AT,), ">i4", self.data, _MAGIC_AT, (1,))

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
        if not self.size:
            return None
        limit = min(end + _MAGIC_AT + len(_MAGIC_PREFIX), self.size)
        found = self.data.find(_MAGIC_PREFIX, position + _MAGIC_AT, limit)
        while found >= 0:
            if self.span(found - _MAGIC_AT) is not None:
                return found - _MAGIC_AT
            found = self.data.find(_MAGIC_PREFIX, found + 1, limit)
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
        pieces = []
        at = begin
        # One turn, unless a body imitates a record where a cursor was set: the chain is then followed from there on.
        while at < end:
            positions = follow_chain(memoryview(self.data)[at:], self.start + at, end - at) + at
            magics = self.magics[positions]
            is_record = (magics == MAGIC_V1) | (magics == MAGIC_V2)
            # Each position is where the record before it ends, so only the last size has to be read.
            last_end = int(positions[-1]) + int.from_bytes(self.data[positions[-1] : positions[-1] + 4], "big")
            is_record &= np.diff(positions, append=last_end) >= MIN_RECORD_BYTES
            is_record[-1] &= last_end <= self.size
            broken = np.flatnonzero(~is_record)
            if broken.size:
                pieces.append(positions[: broken[0]])
                at = int(positions[broken[0]])
                break
            pieces.append(positions)
            at = last_end
        return Walk(np.concatenate(pieces) if pieces else np.empty(0, np.int64), at)

    def _integer(self, position: int, size: int) -> int:
        return int.from_bytes(self.data[position : position + size], "big", signed=True)


def _mapped(descriptor: int, skip: int, size: int) -> mmap.mmap | bytes:
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ, offset=skip) if size else b""


def _read(descriptor: int, skip: int, size: int) -> bytes:
    content = os.pread(descriptor, size, skip)
    while len(content) < size:  # one call reads 2 GiB at most, and less where the file has become shorter
        more = os.pread(descriptor, size - len(content), skip + len(content))
        if not more:
            break
        content += more
    return content


def segment_paths(directory: Path) -> list[tuple[int, Path]]:
    """(physical offset of the first byte, file) of every segment in `directory`, in order.

    Files whose name is not 20 digits are not segments.  Raises OSError if the directory cannot be read.
    """
    names = (path for path in directory.iterdir() if len(path.name) == FILE_NAME_DIGITS and path.name.isdecimal())
    return sorted((int(path.name), path) for path in names)


assert RECORD_FIXED_DTYPE.itemsize == HEAD.size
