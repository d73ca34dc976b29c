"""Finds the end of what is in a mostly empty file, without reading its holes.

Source: lseek(2), SEEK_DATA and SEEK_HOLE.  On ext4, XFS and btrfs blocks that are reserved and were never written
count as a hole; a file system that knows no holes says that all is data, and then all is read.
"""

import errno
import os
from typing import Final

_CHUNK_BYTES: Final = 64 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)


def content_end(descriptor: int, start: int, end: int) -> int:
    """One past the last byte from `start` to before `end` that is not zero; `start` if all are.  Raises OSError."""
    for first, last in reversed(_data_extents(descriptor, start, end)):
        while last > first:
            at = max(first, last - _CHUNK_BYTES)
            content = os.pread(descriptor, last - at, at)
            # Comparing is far faster than stripping zeros byte by byte.
            if content != (_ZEROS if len(content) == _CHUNK_BYTES else bytes(len(content))):
                return at + len(content.rstrip(b"\0"))
            last = at
    return start


def _data_extents(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """Where from `start` to before `end` the file may hold anything but zeros, in order."""
    extents = []
    while start < end:
        try:
            first = os.lseek(descriptor, start, os.SEEK_DATA)
            last = os.lseek(descriptor, first, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # nothing but a hole is left
            if error.errno != errno.EINVAL:
                raise
            first, last = start, end
        extents.append((first, min(last, end)))
        start = last
    return extents
