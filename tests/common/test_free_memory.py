"""Freed memory goes back to the system, although a newer block is in use."""

import ctypes
from pathlib import Path

import pytest

from sprocket.common.free_memory import trim

_BLOCK_BYTES, _BLOCKS = 64 * 1024, 1024


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library has no malloc_trim")
def test_freed_memory_goes_back() -> None:
    blocks = [bytearray(b"x" * _BLOCK_BYTES) for _ in range(_BLOCKS)]
    newest = blocks.pop()
    blocks.clear()
    before = _resident_bytes()
    trim()
    assert before - _resident_bytes() > _BLOCKS * _BLOCK_BYTES // 2
    assert len(newest) == _BLOCK_BYTES
