"""Blocks compressed with zstd, and their expansion within a limit."""

import hashlib
from collections.abc import Callable
from typing import Final

import zstandard

from store.tier.object_store import Damaged

# Level 3 takes 1.4 to 1.7 times as long, for objects that are hardly smaller.
_LEVEL: Final = 1
# No window larger than this is allocated, whatever a block asks for.
_MAX_WINDOW_BYTES: Final = 64 << 20
HASH_BYTES: Final = 16


def compressor() -> Callable[[bytes | memoryview], bytes]:
    """Return a function as `compress`, for one thread at a time, which keeps its memory between calls."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress


def compress(content: bytes | memoryview) -> bytes:
    """Return one zstd frame that says its size.  Releases the interpreter's lock.  For any thread."""
    return compressor()(content)


def max_packed_bytes(raw_bytes: int) -> int:
    """Return how many bytes a frame of `raw_bytes` of content may have (`ZSTD_COMPRESSBOUND`, and a little more)."""
    return raw_bytes + (raw_bytes >> 8) + 64


def decompress(content: bytes | memoryview, max_bytes: int, name: str) -> bytes:
    """Return the content of one zstd frame of at most `max_bytes`.  Raises `Damaged` that begins with `name`."""
    try:
        size_bytes = zstandard.frame_content_size(content)
        if not 0 <= size_bytes <= max_bytes:
            raise Damaged(f"{name}: says that it expands to {size_bytes} bytes, at most {max_bytes} are read")
        return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompress(content)
    except zstandard.ZstdError as error:
        raise Damaged(f"{name}: cannot be expanded: {error}") from error


def short_hash(content: bytes | memoryview) -> bytes:
    """Return the first `HASH_BYTES` bytes of the SHA-256 of `content`."""
    return hashlib.sha256(content).digest()[:HASH_BYTES]
