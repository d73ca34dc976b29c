"""Which pages of a file are in the system's page cache, by mincore(2).

Source of the use: RocketMQ 5.3.3, `CommitLog.ColdDataCheckService.checkFileInPageCache`.
"""

import ctypes
import mmap
from functools import cache

import numpy as np

PAGE_BYTES = mmap.PAGESIZE


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def cached_pages(view: memoryview) -> bytes:
    """One byte for each page of a mapped file: odd if the page is cached.  All ones where the system does not say."""
    count = -(-len(view) // PAGE_BYTES)
    found = ctypes.create_string_buffer(count)
    # ctypes takes the address of a writable buffer alone; numpy takes that of any.
    address = np.frombuffer(view, np.uint8).ctypes.data
    if _libc().mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(view)), found):
        return b"\x01" * count
    return found.raw
