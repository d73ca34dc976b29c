"""Sprocket's own small files in the store's root, with a checksum; a write replaces the whole file.

RocketMQ ignores them.  Layout, big-endian: 4 bytes ``SPKT``, 4 bytes kind of file, version i32, length of the content
i32, CRC32 of the content u32, content.
"""

import struct
import zlib
from pathlib import Path
from typing import Final

from store.disk.disk import Disk

_HEAD: Final = struct.Struct(">4s4siiI")
_MAGIC: Final = b"SPKT"
_VERSION: Final = 1


def seal(kind: bytes, content: bytes) -> bytes:
    """Return the file's bytes for `content`; `kind` has 4 bytes."""
    return _HEAD.pack(_MAGIC, kind, _VERSION, len(content), zlib.crc32(content)) + content


def unseal(kind: bytes, sealed: bytes) -> bytes | str:
    """Return the content, or a few words on why it cannot be trusted.  Never raises on any bytes."""
    if len(sealed) < _HEAD.size:
        return "shorter than its head"
    magic, found, version, length, crc = _HEAD.unpack_from(sealed)
    content = sealed[_HEAD.size :]
    if magic != _MAGIC or found != kind:
        return "magic number is not that of this file"
    if version != _VERSION:
        return f"version {version} is unknown"
    if length != len(content):
        return f"content has {len(content)} bytes, its head says {length}"
    if zlib.crc32(content) != crc:
        return "content does not match its CRC"
    return content


def read_sealed(disk: Disk, path: Path, kind: bytes) -> bytes | str | None:
    """Return the content of the file, or why it cannot be trusted; None if there is no file."""
    sealed = disk.read(path)
    return None if sealed is None else unseal(kind, sealed)


def write_sealed(disk: Disk, path: Path, kind: bytes, content: bytes) -> None:
    """Replace the file durably: a crash leaves the old content or the new.

    Raises `DiskFull` or `DiskFailed`.
    """
    temporary = path.with_name(path.name + ".tmp")
    disk.write_small(temporary, seal(kind, content))
    disk.rename(temporary, path)
