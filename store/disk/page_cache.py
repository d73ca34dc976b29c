"""Look-up of the pages of a file in the system's page cache, by mincore(2).

Source: RocketMQ 5.3.3, `CommitLog.ColdDataCheckService.checkFileInPageCache`.
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
    """Return one byte per page of a mapped file: odd if the page is cached.  All odd if mincore fails."""
    count = -(-len(view) // PAGE_BYTES)
    found = ctypes.create_string_buffer(count)
    # ctypes gives the address of writable buffers only; numpy gives that of any buffer.
    address = np.frombuffer(view, np.uint8).ctypes.data
    if _libc().mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(view)), found):
        return b"\x01" * count
    return found.raw
