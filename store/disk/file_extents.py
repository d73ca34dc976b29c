"""Search for the content of a mostly empty file, without reading its holes.

Source: lseek(2), SEEK_DATA and SEEK_HOLE.  On ext4, XFS and btrfs, reserved blocks that were never written count as a
hole.  A file system without holes reports everything as data; then everything is read.
"""

import errno
import os
from typing import Final

_CHUNK_BYTES: Final = 64 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)


def content_end(descriptor: int, start: int, end: int) -> int:
    """Return one past the last byte from `start` to before `end` that is not zero; `start` if all are zero.

    Raises OSError.
    """
    for first, last in reversed(data_extents(descriptor, start, end)):
        while last > first:
            at = max(first, last - _CHUNK_BYTES)
            content = os.pread(descriptor, last - at, at)
            # A comparison is far faster than stripping zeros byte by byte.
            if content != (_ZEROS if len(content) == _CHUNK_BYTES else bytes(len(content))):
                return at + len(content.rstrip(b"\0"))
            last = at
    return start


def data_extents(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges from `start` to before `end` that may hold anything but zeros, in order.  Raises OSError."""
    extents = []
    while start < end:
        try:
            first = os.lseek(descriptor, start, os.SEEK_DATA)
            last = os.lseek(descriptor, first, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # only a hole follows
            if error.errno != errno.EINVAL:
                raise
            first, last = start, end
        extents.append((first, min(last, end)))
        start = last
    return extents
