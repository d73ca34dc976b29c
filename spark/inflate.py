"""Compressed bodies: which rows have one, and their content within a bound.

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

from remoting.message_record import COMPRESSION_MASK, SysFlag
from sprocket.common.errors import CorruptRecord

_NAMES: Final = {
    0: "zlib",
    int(SysFlag.COMPRESSION_LZ4): "lz4",
    int(SysFlag.COMPRESSION_ZSTD): "zstd",
    int(SysFlag.COMPRESSION_ZLIB): "zlib",
}


def compression_names(sys_flags: npt.NDArray[np.int32]) -> pa.Array:
    """zlib, lz4 or zstd for each record with a compressed body, the number of an unknown kind, else null."""
    if not (sys_flags & SysFlag.COMPRESSED).any():
        return pa.nulls(sys_flags.size, pa.string())
    return pa.array([_name(int(flag)) if flag & SysFlag.COMPRESSED else None for flag in sys_flags], pa.string())


def inflate_bodies(
    bodies: pa.Array, sys_flags: npt.NDArray[np.int32], physical_offsets: npt.NDArray[np.int64], limit_bytes: int
) -> pa.Array:
    """`bodies` with the compressed ones inflated.

    Raises CorruptRecord for a body that is not what its flag says, or that inflates to more than
    `limit_bytes`; nothing larger than that is ever allocated.
    """
    compressed = np.flatnonzero(sys_flags & SysFlag.COMPRESSED)
    if not compressed.size:
        return bodies
    pieces: list[pa.Array] = []
    done = 0
    for row in compressed.tolist():
        content = _inflate(bodies[row].as_py(), int(sys_flags[row]), int(physical_offsets[row]), limit_bytes)
        pieces += [bodies.slice(done, row - done), pa.array([content], pa.binary())]
        done = row + 1
    return pa.concat_arrays([*pieces, bodies.slice(done)])


def _name(flag: int) -> str:
    return _NAMES.get(flag & COMPRESSION_MASK, f"unknown {(flag & COMPRESSION_MASK) >> 8}")


def _inflate(body: bytes, flag: int, physical_offset: int, limit_bytes: int) -> bytes:
    name = _name(flag)
    inflate = _INFLATERS.get(name)
    if inflate is None:
        raise CorruptRecord(physical_offset, f"compression type {name} of the body is not known")
    try:
        content = inflate(body, limit_bytes + 1)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError) as error:
        raise CorruptRecord(physical_offset, f"body is not {name}: {error}") from error
    if len(content) > limit_bytes:
        raise CorruptRecord(physical_offset, f"body inflates to more than {limit_bytes} bytes (inflateMaxBytes)")
    return content


def _zlib(body: bytes, limit: int) -> bytes:
    return zlib.decompressobj().decompress(body, limit)


def _lz4(body: bytes, limit: int) -> bytes:
    content: bytes = lz4.frame.LZ4FrameDecompressor().decompress(body, limit)
    return content


def _zstd(body: bytes, limit: int) -> bytes:
    with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body, read_across_frames=True) as reader:
        return reader.read(limit)


_INFLATERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}
