"""Form of a compacted object: one part of a compacted queue, its file of records and then its file of units.

A sequence of blocks: the size of a zstd frame (4 bytes, big-endian), and the frame, of up to 1 MiB of content.
"""

import asyncio
import hashlib
import os
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from sprocket.common.files.disk_errors import as_store_error
from sprocket.common.files.regular_file import open_regular
from store.compaction.manifest import Part
from store.tier.compression import compress, decompress
from store.tier.manifest import CompactedEntry
from store.tier.object_store import Damaged, ObjectStore

_BLOCK_BYTES: Final = 1 << 20
_MAX_PACKED_BYTES: Final = 2 << 20
_SIZE: Final = struct.Struct(">I")


class OpenedPart:
    """The files of a part, which may be removed meanwhile.  Iteration returns the bytes of the object, once."""

    def __init__(self, directory: Path, part: Part) -> None:
        """Raises FileNotFoundError if a newer part has replaced it, and `StoreError` if a file cannot be opened."""
        self.part = part
        # Of the bytes that were returned.
        self._hash, self.size_bytes = hashlib.sha256(), 0
        self._descriptors: list[int] = []
        try:
            self._descriptors += (open_regular(directory / name) for name in part.file_names)
        except OSError as error:
            self.close()
            if isinstance(error, FileNotFoundError):
                raise
            raise as_store_error(error, "open", directory) from error

    @property
    def sha256(self) -> str:
        """Hash of the object, after the iteration has ended."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __iter__(self) -> Iterator[bytes]:
        for descriptor, size_bytes in zip(self._descriptors, self.part.file_bytes, strict=True):
            for at in range(0, size_bytes, _BLOCK_BYTES):
                wanted = min(_BLOCK_BYTES, size_bytes - at)
                content = os.pread(descriptor, wanted, at)
                if len(content) < wanted:
                    raise OSError(f"compacted part {self.part.name}: ends at {at + len(content)} of {size_bytes} bytes")
                packed = compress(content)
                piece = _SIZE.pack(len(packed)) + packed
                self._hash.update(piece)
                self.size_bytes += len(piece)
                yield piece


async def contents(pieces: AsyncIterator[bytes | memoryview], key: str) -> AsyncIterator[bytes]:
    """Return the contents of the blocks in an object.  Raises `Damaged`."""
    pending = bytearray()
    async for piece in pieces:
        pending += piece
        while len(pending) >= _SIZE.size:
            (packed_bytes,) = _SIZE.unpack_from(pending)
            if packed_bytes > _MAX_PACKED_BYTES:
                raise Damaged(
                    f"{key}: says that a block has {packed_bytes} bytes, at most {_MAX_PACKED_BYTES} are read"
                )
            end = _SIZE.size + packed_bytes
            if len(pending) < end:
                break
            yield await asyncio.to_thread(decompress, bytes(pending[_SIZE.size : end]), _BLOCK_BYTES, key)
            del pending[:end]
    if pending:
        raise Damaged(f"{key}: ends within a block")


async def write_part(objects: ObjectStore, entry: CompactedEntry, directory: Path) -> list[Path]:
    """Write the files of a part, as they were on the broker's disk, and sync them.  Return their paths.

    Raises `Damaged`, or another `ObjectStoreError`.
    """
    paths = [directory / name for name in entry.part.file_names]
    (log_bytes, queue_bytes), digest, at = entry.part.file_bytes, hashlib.sha256(), 0

    async def hashed() -> AsyncIterator[bytes | memoryview]:
        async for piece in objects.stream(entry.key):
            await asyncio.to_thread(digest.update, piece)
            yield piece

    with paths[0].open("wb") as log, paths[1].open("wb") as queue:
        async for content in contents(hashed(), entry.key):
            # A block is of one file.
            await asyncio.to_thread((log if at < log_bytes else queue).write, content)
            at += len(content)
            if at > log_bytes + queue_bytes:
                break  # a small object may say that it has any number of bytes
        if at != log_bytes + queue_bytes or digest.hexdigest() != entry.sha256:
            raise Damaged(f"{entry.key}: is not what was uploaded")
        for file in (log, queue):
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
    return paths
