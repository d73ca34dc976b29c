"""Form of a tables object: the broker's small files (topics, groups, offsets, users), see `store.backup.tables`.

It is zstd of MessagePack: a map of paths in the store's root to contents.
"""

from typing import Final

import msgspec

from store.tier.compression import compress, decompress
from store.tier.object_store import Damaged

MAX_BYTES: Final = 256 << 20
_MAX_RAW_BYTES: Final = 1 << 30


def encode_tables(tables: dict[str, bytes]) -> bytes:
    """Return the object's bytes; equal tables have equal bytes."""
    return compress(msgspec.msgpack.encode(dict(sorted(tables.items()))))


def decode_tables(content: bytes) -> dict[str, bytes]:
    """Return paths and contents.  Raises `Damaged`, also for a path that leaves the store's root."""
    try:
        raw = decompress(content, _MAX_RAW_BYTES, "tables object")
        tables = msgspec.msgpack.decode(raw, type=dict[str, bytes])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(f"tables object: is not one: {error}") from error
    for path in tables:
        if path.startswith("/") or not path or any(part in ("", ".", "..") for part in path.split("/")):
            raise Damaged(f"tables object: {path!r} is not a path inside a store")
    return tables
