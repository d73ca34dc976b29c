"""Compressed bodies: rows that have one, and their content up to a limit.

Source: RocketMQ 5.3.3, `MessageSysFlag.getCompressionType`, `CompressionType`, `Lz4Compressor` (LZ4 frames).
"""

import zlib
from collections.abc import Callable
from typing import Final

import lz4.frame
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag

# Maximum size of inflated bodies that are held at once; a single body may be larger.
MAX_AT_ONCE: Final = 32 * 1024 * 1024
# Four bytes of zstd can stand for a block of 128 KiB.  So a byte inflates to at most a quarter of it.
_ZSTD_RATIO: Final = 32 * 1024
_ZSTD_STEP_BYTES: Final = 64
_NAMES: Final = {
    0: "zlib",
    int(SysFlag.COMPRESSION_LZ4): "lz4",
    int(SysFlag.COMPRESSION_ZSTD): "zstd",
    int(SysFlag.COMPRESSION_ZLIB): "zlib",
}


def compression_names(sys_flags: npt.NDArray[np.int32]) -> pa.Array:
    """Return zlib, lz4, zstd or an unknown number for each record with a compressed body, else null."""
    if not (sys_flags & SysFlag.COMPRESSED).any():
        return pa.nulls(sys_flags.size, pa.string())
    return pa.array([_name(int(flag)) if flag & SysFlag.COMPRESSED else None for flag in sys_flags], pa.string())


class InflatesTooMuch(Exception):
    """Several bodies are too large together: read fewer at once."""


def inflate_bodies(
    bodies: pa.Array, sys_flags: npt.NDArray[np.int32], limit_bytes: int
) -> tuple[pa.Array, dict[int, str]]:
    """Return `bodies` with the compressed ones inflated, and the reason for each row that failed; such a row is null.

    A body fails if it does not match its flag, or inflates to more than `limit_bytes`; nothing larger is ever
    allocated.
    Raises InflatesTooMuch if several bodies have more than `MAX_AT_ONCE` bytes together.
    """
    compressed = np.flatnonzero(sys_flags & SysFlag.COMPRESSED)
    failed: dict[int, str] = {}
    if not compressed.size:
        return bodies, failed
    pieces: list[pa.Array] = []
    done = total = 0
    for row in compressed.tolist():
        found = _inflate(bodies[row].as_py(), int(sys_flags[row]), limit_bytes)
        content = found if isinstance(found, bytes) else None
        if content is None:
            failed[row] = str(found)
        total += len(content or b"")
        if total > MAX_AT_ONCE and compressed.size > 1:
            raise InflatesTooMuch
        pieces += [bodies.slice(done, row - done), pa.array([content], pa.binary())]
        done = row + 1
    return pa.concat_arrays([*pieces, bodies.slice(done)]), failed


def _name(flag: int) -> str:
    return _NAMES.get(flag & COMPRESSION_MASK, f"unknown {(flag & COMPRESSION_MASK) >> 8}")


def _inflate(body: bytes, flag: int, limit_bytes: int) -> bytes | str:
    """Return the content, or the reason for a failure."""
    name = _name(flag)
    inflate = _INFLATERS.get(name)
    if inflate is None:
        return f"compression type {name} of the body is not known"
    try:
        content = inflate(body, limit_bytes + 1)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError) as error:
        return f"the body is not {name}: {error}"
    return content if len(content) <= limit_bytes else f"the body inflates to more than {limit_bytes} bytes"


def _zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(body, limit)
    if not stream.eof and len(content) < limit:
        raise EOFError("it ends too soon")
    return content


def _lz4(body: bytes, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    content: bytes = stream.decompress(body, limit)
    if not stream.eof and len(content) < limit:
        raise EOFError("it ends too soon")
    return content


def _zstd(body: bytes, limit: int) -> bytes:
    # The library's reader accepts a truncated stream; these objects detect the end of a frame.
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    pieces: list[bytes] = []
    left = limit
    frame = decompressor.decompressobj()
    at = 0
    while at < len(body) and left > 0:
        # Input that inflates to at most what is left, or 2 MiB.
        step = body[at : at + max(_ZSTD_STEP_BYTES, left // _ZSTD_RATIO)]
        at += len(step)
        while step and left > 0:
            if frame.eof:
                frame = decompressor.decompressobj()
            pieces.append(frame.decompress(step)[:left])
            left -= len(pieces[-1])
            step = frame.unused_data if frame.eof else b""
    if left > 0 and not frame.eof:
        raise EOFError("it ends too soon")
    return b"".join(pieces)


_INFLATERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}
