"""Opening of files that may be anything: a folder of a store may hold FIFOs, devices, and sparse files of a tebibyte.

The open of a FIFO waits for another process, and the read of a device may never end.  So readers of a store's folder
open regular files only, and look at the size before they read.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from sprocket.common.spare_descriptors import spare_descriptors

# Of tables and other files that are read as a whole; the largest real ones have some 100 MiB.
MAX_READ_BYTES: Final = 1024 * 1024 * 1024
# Windows has no FIFOs among its files, opens them as text unless told otherwise, and its children inherit none.
_NEVER_WAITS: Final = os.O_CLOEXEC | os.O_NONBLOCK if hasattr(os, "O_NONBLOCK") else getattr(os, "O_BINARY", 0)


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Open a regular file and return its descriptor; `mode` is that of a new one.

    Never waits.  Raises OSError, also for any other kind of file.
    """
    return open_sized(path, flags, mode)[0]


def open_sized(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o644) -> tuple[int, int]:
    """Open as `open_regular`; return descriptor and size, bytes."""
    descriptor = spare_descriptors.use(lambda: os.open(path, flags | _NEVER_WAITS, mode))
    status = os.fstat(descriptor)
    kind = status.st_mode
    if stat.S_ISREG(kind):
        return descriptor, status.st_size
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no regular file; move it away", str(path))


def read_regular(path: Path, max_bytes: int = MAX_READ_BYTES) -> bytes:
    """Return the content of a regular file.  Raises OSError, also for one of more than `max_bytes`."""
    descriptor, size_bytes = open_sized(path)
    with os.fdopen(descriptor, "rb") as file:
        if size_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"it has {size_bytes} bytes, at most {max_bytes} are read", str(path))
        return file.read()
