"""Sequence of files of one size on the disk, each named by the offset of its first byte.

Reading counterpart of `store.disk.mapped_file_queue`: it reports gaps, wrong sizes and strange names, and refuses none.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from store.inspection.file_view import FileView, list_directory
from store.layout import FILE_NAME_DIGITS, file_name

# Mappings to keep open at a time.
_OPEN_FILES: Final = 256
_MAX_OFFSET: Final = (1 << 63) - 1


@lru_cache(maxsize=_OPEN_FILES)
def _view(path: Path, size_bytes: int, serial: int) -> FileView:
    return FileView(path)


@dataclass(frozen=True, slots=True)
class PartFile:
    """One file of the sequence.  `size_bytes` is its real size, right or wrong."""

    start: int
    path: Path
    size_bytes: int


class FileSequence:
    """Files of `directory`.  Raises `StoreError` if the directory cannot be read."""

    _serial = 0

    def __init__(self, directory: Path, file_bytes: int | None = None) -> None:
        self.directory = directory
        self.strays: list[str] = []
        self.parts: list[PartFile] = []
        FileSequence._serial += 1
        self._number = FileSequence._serial
        for name, is_directory, size_bytes in list_directory(directory):
            digits = len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()
            if digits and not is_directory and int(name) <= _MAX_OFFSET:
                self.parts.append(PartFile(int(name), directory / name, size_bytes))
            else:
                self.strays.append(name)
        self._starts = [part.start for part in self.parts]
        self.file_bytes = file_bytes or likely_file_bytes(self.parts)

    @property
    def first_offset(self) -> int:
        """Offset of the first byte; 0 without files."""
        return self.parts[0].start if self.parts else 0

    @property
    def end_offset(self) -> int:
        """Exclusive end of the offsets that the files can hold."""
        return self.parts[-1].start + self.file_bytes if self.parts else 0

    def view(self, part: PartFile) -> FileView:
        """Return the content of one of the files.  Raises `StoreError` if it cannot be opened."""
        return _view(part.path, part.size_bytes, self._number)

    def path_at(self, offset: int) -> Path:
        """Return the path of the file for `offset`, whether or not it exists."""
        return self.directory / file_name(offset - offset % self.file_bytes if self.file_bytes else offset)

    def missing(self) -> list[int]:
        """Return the offsets at which a file between two others is missing."""
        found = []
        for before, after in pairwise(self.parts):
            if self.file_bytes and after.start - before.start <= self.file_bytes * 1_000_000:
                found += list(range(before.start + self.file_bytes, after.start, self.file_bytes))
        return found

    def misplaced(self) -> list[PartFile]:
        """Return the files whose name is not a multiple of the file size."""
        return [part for part in self.parts if self.file_bytes and part.start % self.file_bytes]

    def wrong_size(self) -> list[PartFile]:
        """Return the files whose size differs from the others."""
        return [part for part in self.parts if part.size_bytes != self.file_bytes]

    def bytes_at(self, offset: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` bytes from `offset` on, across files; zeros for missing files."""
        found = bytearray(size_bytes)
        first = max(0, bisect_right(self._starts, offset) - 1)
        for part in self.parts[first:]:
            if part.start >= offset + size_bytes:
                break
            at = max(offset, part.start)
            end = min(offset + size_bytes, part.start + min(part.size_bytes, self.file_bytes))
            if at < end:
                found[at - offset : end - offset] = self.view(part).data[at - part.start : end - part.start]
        return bytes(found)

    def extents(self) -> list[tuple[int, int]]:
        """Return offsets (start, end) of the parts that the file system stores; between them are zeros."""
        found = []
        for part in self.parts:
            for start, end in self.view(part).extents():
                end = min(end, self.file_bytes)
                if start < end:
                    found.append((part.start + start, part.start + end))
        return found


def likely_file_bytes(parts: Iterable[PartFile]) -> int:
    """Return the size that the files were probably created with, judged by sizes and names; 0 if unknown."""
    parts = list(parts)
    sizes = Counter(part.size_bytes for part in parts if part.size_bytes)
    commonest = max(sizes.values(), default=0)
    size_bytes = max((size for size, count in sizes.items() if count == commonest), default=0)
    distances = [after.start - before.start for before, after in pairwise(parts)]
    distance = min(distances, default=0)
    if not distance or (size_bytes and distance % size_bytes == 0):
        return size_bytes
    return distance
