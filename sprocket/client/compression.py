"""Compression of message bodies: the three types of the reference, and a bound on what a body inflates to.

lz4 and zstandard are extras: a program that never sees such a body does without them.

Source: RocketMQ 5.3.3, `CompressionType`, `ZlibCompressor`, `Lz4Compressor` (LZ4 frame format), `ZstdCompressor`,
`MessageSysFlag`.
"""

import zlib
from enum import Enum
from importlib.util import find_spec
from typing import Final

from sprocket.client.errors import BodyUnreadable
from sprocket.common import limits
from sprocket.common.extras import EXTRA_OF, install, missing_package
from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag

# Four bytes can stand for a block of 128 KiB, so this many inflate to no more than 2 MiB at a time.
_ZSTD_STEP_BYTES = 64
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
# What zlib calls a gzip header with a window of 32 KiB.
_GZIP_WBITS = 31


class Compression(Enum):
    """How bodies are compressed; the value is the type's bits in `sys_flag`."""

    ZLIB = int(SysFlag.COMPRESSION_ZLIB)
    LZ4 = int(SysFlag.COMPRESSION_LZ4)
    ZSTD = int(SysFlag.COMPRESSION_ZSTD)


# What a type needs beyond Python.
_PACKAGES: Final = {Compression.LZ4: "lz4", Compression.ZSTD: "zstandard"}


def lacking(compression: Compression) -> str | None:
    """Return what to install before `compression` can be used; None if nothing is missing."""
    package = _PACKAGES.get(compression)
    if package is None or find_spec(package) is not None:
        return None
    return f"{compression.name} needs {package}, which is not installed: {install(EXTRA_OF[package])}"


def compress(body: bytes, compression: Compression, level: int) -> tuple[bytes, int]:
    """Return the compressed body and the bits for `sys_flag`."""
    if compression is Compression.ZLIB:
        compressed = zlib.compress(body, level)
    elif compression is Compression.LZ4:
        import lz4.frame

        compressed = lz4.frame.compress(body, compression_level=level)
    else:
        import zstandard

        compressed = zstandard.ZstdCompressor(level=level).compress(body)
    return compressed, SysFlag.COMPRESSED | compression.value


def decompress(body: bytes, sys_flag: int, limit_bytes: int = limits.MAX_INFLATED_BYTES) -> bytes:
    """Return the body as it was sent; `body` itself when `sys_flag` says it is not compressed.

    Raises BodyUnreadable for damaged data, an unknown type, a type whose extra is missing, or more than `limit_bytes`.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_MASK
    try:
        if kind in (0, SysFlag.COMPRESSION_ZLIB):
            inflated, is_whole = _unzlib(body, limit_bytes)
        elif kind == SysFlag.COMPRESSION_LZ4:
            inflated, is_whole = _unlz4(body, limit_bytes)
        elif kind == SysFlag.COMPRESSION_ZSTD:
            inflated, is_whole = _unzstd(body, limit_bytes)
        else:
            raise BodyUnreadable(f"sys_flag {sys_flag:#x} names compression type {kind >> 8}, which is none")
    except (zlib.error, RuntimeError, EOFError) as error:
        raise _damaged(error) from None
    except ModuleNotFoundError as error:
        raise BodyUnreadable(f"{missing_package(error, f'a body compressed with {Compression(kind).name}')}") from None
    return _checked(inflated, is_whole, limit_bytes)


def gunzip(body: bytes, limit_bytes: int = limits.MAX_INFLATED_BYTES) -> bytes:
    """Return a body that gRPC clients sent with gzip.  Raises BodyUnreadable as `decompress`."""
    try:
        inflated, is_whole = _unzlib(body, limit_bytes, _GZIP_WBITS)
    except zlib.error as error:
        raise _damaged(error) from None
    return _checked(inflated, is_whole, limit_bytes)


def _damaged(error: Exception) -> BodyUnreadable:
    return BodyUnreadable(f"compressed body is damaged: {error}")


def _checked(inflated: bytes, is_whole: bool, limit_bytes: int) -> bytes:
    if not is_whole:
        raise BodyUnreadable(f"compressed body is cut short or inflates beyond {limit_bytes} bytes")
    return inflated


def _unzlib(body: bytes, limit_bytes: int, wbits: int = zlib.MAX_WBITS) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj(wbits)
    inflated = inflater.decompress(body, limit_bytes)
    return inflated, inflater.eof


def _unlz4(body: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    import lz4.frame

    inflater = lz4.frame.LZ4FrameDecompressor()
    inflated: bytes = inflater.decompress(body, max_length=limit_bytes)
    return inflated, inflater.eof


def _unzstd(body: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    import zstandard

    # The library's stream reader accepts a truncated stream as complete; this one detects the end.
    inflater = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
    pieces = []
    left = limit_bytes
    try:
        for at in range(0, len(body), _ZSTD_STEP_BYTES):
            pieces.append(inflater.decompress(body[at : at + _ZSTD_STEP_BYTES]))
            left -= len(pieces[-1])
            if left < 0 or inflater.eof:
                break
    except zstandard.ZstdError as error:
        raise RuntimeError(str(error)) from None
    return b"".join(pieces), inflater.eof and left >= 0
