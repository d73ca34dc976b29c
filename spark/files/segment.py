"""CommitLog segment for readers: its bytes, the walk over its records, and resynchronisation.

A segment is a chain of records (`sprocket.remoting.message.record`), each at the byte where the previous one ends.  A
blank record ends the chain or, in the file that is being written, zeros do.  Bytes count as a record only if the magic
is V1 or V2 and `physical_offset` is their own position.

The walk is the store's (`store.scan.engine`): it never reads bytes of a body that imitate a record.
"""

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from sprocket.common.files.regular_file import open_regular
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
)
from store.layout import FILE_NAME_DIGITS
from store.record.checksum import masked_crc
from store.record.record import parts_of, store_timestamp_of
from store.scan.columns import Chain
from store.scan.engine import chain
from store.scan.record_search import record_starts

Positions = npt.NDArray[np.int64]

PAGE_BYTES: Final = mmap.ALLOCATIONGRANULARITY
# A size above this is damage: no memory is allocated for it.
MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
# Distance after damage in the last segment within which a later record is searched for.
RESYNC_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class RecordSpan:
    """Parts of one record, as positions in its segment."""

    size: int
    body_crc: int
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
        with os.fdopen(open_regular(path), "rb") as file:
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
        parts = parts_of(memoryview(self.data)[position : position + size])
        if isinstance(parts, str):
            return None
        fields, body_at, topic_at, properties_at = parts
        # RocketMQ reads both lengths as signed numbers of 16 bits.
        if max(size - properties_at, properties_at - 2 - topic_at) > MAX_PROPERTIES_BYTES:
            return None
        body, topic, properties = (
            slice(position + begin, position + end)
            for begin, end in ((body_at, body_at + fields[14]), (topic_at, properties_at - 2), (properties_at, size))
        )
        return RecordSpan(size, fields[2], body, topic, properties)

    def is_whole(self, position: int) -> bool:
        """Return whether the record at `position` has been written to its last byte.

        Its lengths, the CRC of its body and its properties (text, so no zero bytes) must all hold.
        """
        span = self.span(position)
        if span is None:
            return False
        return masked_crc(self.data[span.body]) == span.body_crc and 0 not in self.data[span.properties]

    def store_timestamp(self, position: int) -> int:
        """Return the store timestamp of the record at `position`, ms."""
        return store_timestamp_of(memoryview(self.data)[position : position + MIN_RECORD_BYTES])

    def resync(self, position: int, end: int) -> int | None:
        """Return the first position in [`position`, `end`) where a record begins, found by its magic."""
        starts = record_starts(self.data, self.start, position, end)
        return next((at for at in starts if self.span(at) is not None), None)

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
        head = self.data[position : position + BLANK_MIN_BYTES]
        return len(head) == BLANK_MIN_BYTES and SIZE_AND_MAGIC.unpack(head) == (left, MAGIC_BLANK)

    def walk(self, begin: int, end: int) -> Chain:
        """Return all records that begin in [`begin`, `end`); one must begin at `begin`."""
        found = chain(memoryview(self.data)[begin:], end - begin)
        return Chain(found.positions + begin, found.stop + begin)


def _mapped(descriptor: int, skip: int, size: int) -> mmap.mmap | bytes:
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ, offset=skip) if size else b""


def segment_paths(directory: Path) -> list[tuple[int, Path]]:
    """Return (physical offset of the first byte, file) of every segment in `directory`, in order.

    Files whose name is not 20 digits are not segments.  Raises OSError if the directory cannot be read.
    """
    names = (path for path in directory.iterdir() if len(path.name) == FILE_NAME_DIGITS and path.name.isdecimal())
    return sorted((int(path.name), path) for path in names)
