"""The lock file of a store: one broker at a time.

It is an open-file-description lock: it conflicts with the POSIX lock that a Java broker takes on the same byte.  Unlike
a POSIX lock, it also conflicts with a second store in the same process.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from sprocket.common.files.regular_file import open_regular

# The first byte, exclusively: struct flock of fcntl(2), l_pid must be 0 for F_OFD_SETLK.
_FIRST_BYTE: Final = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


class StoreLock:
    """A held lock of a store."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def take_lock(path: Path) -> StoreLock | None:
    """Lock the file, and create it if necessary; None if another holds the lock.  Raises OSError."""
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FIRST_BYTE)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return StoreLock(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a broker, RocketMQ's or ours, holds the lock.  Does not lock.  Raises OSError if unknown."""
    descriptor = open_regular(path)
    try:
        held = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _FIRST_BYTE)
    finally:
        os.close(descriptor)
    kind: int = struct.unpack("hhqqi", held)[0]
    return kind != fcntl.F_UNLCK
