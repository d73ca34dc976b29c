"""A full page cache, as on a machine that has run for a day.

A broker writes new pages of its log all the time.  On a machine with free memory the system takes them from there; on a
virtual machine the host must then provide memory that the guest has never used, which costs about five times as much as
the page itself.  With a full page cache a new page replaces an old one.
"""

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import Final

from benchmarks.system import process

_STEP_BYTES: Final = 8 * 1024 * 1024
# What stays free.  The servers take more than that from the clean pages of the file, as they do on any such machine.
SPARE_BYTES: Final = 256 * 1024**2


@contextlib.contextmanager
def filled(size_bytes: int) -> Iterator[int]:
    """Hold `size_bytes` of clean pages in the page cache: those of a file without blocks, which is read once.

    Yields the file's descriptor.
    """
    with tempfile.TemporaryFile(prefix="sprocket-bench-") as file, mmap.mmap(-1, _STEP_BYTES) as buffer:
        file.truncate(size_bytes)
        for at in range(0, size_bytes, _STEP_BYTES):
            os.preadv(file.fileno(), [memoryview(buffer)[: size_bytes - at]], at)
        yield file.fileno()


def free_bytes() -> int:
    """Return the memory that nothing uses, without `SPARE_BYTES`."""
    return max(0, process.free_bytes() - SPARE_BYTES)
