"""The file of entries: one frame, one write and one sync for all entries of one turn.

Layout, big-endian.  Head of the file: 8 bytes ``SPKTRAFT``, version u32, 16 random bytes (the salt), CRC u32 of these.
Then frames without a gap, then zeros to the end of the file, which is allocated whole.  Head of a frame: 4 bytes
``RFRM``, size of its body u32, number of the frame u64, which counts from 0, CRC u32 of the salt, of the fields before
it, and of the body.  Body: entries, each index u64, term u64, size u32, command.

An entry whose index is not above the last one replaces the log from there on.

A frame is written only after the one before it was synced.  So a bad frame with a good one after it was damaged later,
and the file is refused.  A bad frame with none after it is the torn end of a write that nobody was answered for: it is
zeroed.  Nobody can put a good frame into a command, because nobody knows the salt.  If the last frame was synced and
damaged later, it looks like a torn one: docs/failover.md says so.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ha.raft.journal import Entry
from sprocket.common.errors import StoreError
from store.disk.disk import Disk, DiskFile
from store.record.checksum import crc32

VERSION: Final = 1
SALT_BYTES: Final = 16
MAX_FILE_BYTES: Final = 1024 * 1024 * 1024
_MAGIC: Final = b"SPKTRAFT"
_HEAD: Final = struct.Struct(f">8sI{SALT_BYTES}sI")
_FRAME_MAGIC: Final = b"RFRM"
_FRAME: Final = struct.Struct(">4sIQI")
_CRC_BYTES: Final = 4
_ENTRY: Final = struct.Struct(">QQI")
MIN_FILE_BYTES: Final = 4 * 1024 * 1024
_ADVICE: Final = "restore the disk, or remove this member's directory and call forget_member for it on the leader"


class JournalFile:
    """The open file.  One thread at a time uses it."""

    def __init__(self, file: DiskFile, size_bytes: int, salt: bytes, end: int, next_number: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._salt = salt
        self._end = end
        self._next_number = next_number

    @classmethod
    def create(cls, disk: Disk, path: Path, entries: Sequence[Entry], salt: bytes) -> "JournalFile":
        """Replace the file at `path` by one that holds `entries`: a crash leaves the old one or the new one.

        Raises `DiskFull` or `DiskFailed`.
        """
        size_bytes = max(MIN_FILE_BYTES, 2 * (_HEAD.size + frame_bytes(entries)))
        temporary = path.with_name(path.name + ".new")
        file = disk.create(temporary, size_bytes, preallocate=True)
        head = _HEAD.pack(_MAGIC, VERSION, salt, 0)[:-_CRC_BYTES]
        file.write(0, head + crc32(head).to_bytes(_CRC_BYTES, "big"))
        one = cls(file, size_bytes, salt, _HEAD.size, 0)
        if not one.append(entries):
            file.sync()
        disk.rename(temporary, path)
        return one

    @classmethod
    def open(cls, disk: Disk, path: Path) -> "tuple[JournalFile, list[Entry]] | None":
        """Open the file and return it with its log; None if there is none.  A torn end is zeroed.

        Raises `StoreError` for a damaged file, and `DiskFailed`.
        """
        size_bytes = disk.size(path)
        if size_bytes is None:
            return None
        if not _HEAD.size <= size_bytes <= MAX_FILE_BYTES:
            raise StoreError(f"{path}: {size_bytes} bytes is no size of a journal: {_ADVICE}")
        file = disk.open(path, preallocate=False)
        content = file.read(0, size_bytes)
        magic, version, salt, crc = _HEAD.unpack_from(content)
        if magic != _MAGIC or crc32(content[: _HEAD.size - _CRC_BYTES]) != crc:
            raise StoreError(f"{path}: its head is damaged: {_ADVICE}")
        if version != VERSION:
            raise StoreError(f"{path}: version {version} is unknown, {VERSION} is expected")
        entries, end, next_number = _scan(path, content, salt)
        stop = end + len(content[end:].rstrip(b"\0"))
        if stop > end:
            file.write(end, bytes(stop - end))
            file.sync()
        return cls(file, size_bytes, salt, end, next_number), entries

    def has_room(self, entries: Sequence[Entry]) -> bool:
        """Return whether `entries` fit into the rest of the file."""
        return self._end + frame_bytes(entries) <= self._size_bytes

    def append(self, entries: Sequence[Entry]) -> bool:
        """Write and sync `entries`, for which there is room.  Return False if there are none: then nothing is synced.

        Raises `DiskFull` or `DiskFailed`.
        """
        if not entries:
            return False
        body = b"".join(part for entry in entries for part in _parts(entry))
        head = struct.pack(">4sIQ", _FRAME_MAGIC, len(body), self._next_number)
        self._file.write(self._end, head + _frame_crc(self._salt, head, body).to_bytes(_CRC_BYTES, "big") + body)
        self._file.sync()
        self._end += _FRAME.size + len(body)
        self._next_number += 1
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def frame_bytes(entries: Sequence[Entry]) -> int:
    """Return the size of the frame of `entries`."""
    return _FRAME.size + sum(_ENTRY.size + len(entry[0]) for entry in entries)


def _parts(entry: Entry) -> tuple[bytes, bytes]:
    command, index, term = entry
    return _ENTRY.pack(index, term, len(command)), command


def _frame_crc(salt: bytes, head: bytes, body: bytes) -> int:
    return crc32(body, crc32(head, crc32(salt)))


def _scan(path: Path, content: bytes, salt: bytes) -> tuple[list[Entry], int, int]:
    """Return the log, the end of the last good frame, and the number of the next one."""
    entries: list[Entry] = []
    at, number = _HEAD.size, 0
    while (body := _body_at(content, at, salt, number)) is not None:
        for entry in _entries(body):
            if entries and not entries[0][1] <= entry[1] <= entries[-1][1] + 1:
                raise StoreError(f"{path}: at {at}, entry {entry[1]} does not continue the log: {_ADVICE}")
            if entries:
                del entries[entry[1] - entries[0][1] :]
            entries.append(entry)
        at += _FRAME.size + len(body)
        number += 1
    later = content.find(_FRAME_MAGIC, at + 1)
    while later >= 0:
        if _body_at(content, later, salt, None) is not None:
            raise StoreError(f"{path}: the frame at {at} is damaged, and the one at {later} is not: {_ADVICE}")
        later = content.find(_FRAME_MAGIC, later + 1)
    return entries, at, number


def _body_at(content: bytes, at: int, salt: bytes, number: int | None) -> bytes | None:
    """Return the body of the good frame at `at`, whose number must be `number` unless that is None."""
    if at + _FRAME.size > len(content):
        return None
    magic, size_bytes, found, crc = _FRAME.unpack_from(content, at)
    start = at + _FRAME.size
    if magic != _FRAME_MAGIC or number not in (None, found) or start + size_bytes > len(content):
        return None
    body = content[start : start + size_bytes]
    return body if _frame_crc(salt, content[at : start - _CRC_BYTES], body) == crc else None


def _entries(body: bytes) -> list[Entry]:
    """Return the entries of a frame whose CRC is right."""
    found, at = [], 0
    while at < len(body):
        index, term, size_bytes = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        found.append((body[at : at + size_bytes], index, term))
        at += size_bytes
    return found
