"""Copies of what recovery cuts off the log, if it contains whole records.

A folder ``<root>/cut/<offset>-<utc time>/`` holds the bytes, one file per segment, named by the offset of its first
byte.  Its ``cut.json`` gives the range of offsets and the reason.
"""

import json
import logging
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from sprocket.remoting.message.record import MIN_RECORD_BYTES
from store.disk.disk import Disk, DiskFile
from store.layout import file_name
from store.record.record import Record, decode
from store.scan.record_search import record_starts

_log = logging.getLogger(__name__)
_SIZE: Final = struct.Struct(">i")
_COPY_BYTES: Final = 1 << 20


class Piece(NamedTuple):
    """Bytes ``[start, end)`` of a segment's file.  The file's first byte has the physical offset `base`."""

    file: DiskFile
    base: int
    start: int
    end: int


def first_record(pieces: list[Piece]) -> int | None:
    """Return the physical offset of the first whole record that begins in `pieces`; None without one."""
    return next((offset for piece in pieces for offset in _records(piece)), None)


def _records(piece: Piece) -> Iterator[int]:
    view = piece.file.view
    for at in record_starts(view, piece.base, piece.start, piece.end):
        (size,) = _SIZE.unpack_from(view, at)
        if MIN_RECORD_BYTES <= size <= len(view) - at and isinstance(decode(view[at : at + size]), Record):
            yield piece.base + at


def copy_aside(disk: Disk, root: Path, pieces: list[Piece], reason: str, record_offset: int, now_ms: int) -> Path:
    """Copy `pieces` durably.  Return the folder.  Raises `DiskFull` or `DiskFailed`."""
    first, last = pieces[0], pieces[-1]
    start, end = first.base + first.start, last.base + last.end
    time = datetime.fromtimestamp(now_ms / 1000, UTC)
    folder = root / "cut" / f"{file_name(start)}-{time:%Y%m%dT%H%M%S}Z"
    for piece in pieces:
        _copy(disk, folder, piece)
    facts = {
        "from": start,
        "to": end,
        "reason": reason,
        "firstWholeRecord": record_offset,
        "time": f"{time:%Y-%m-%dT%H:%M:%SZ}",
        "files": [file_name(piece.base + piece.start) for piece in pieces],
    }
    disk.write_small(folder / "cut.json", json.dumps(facts, indent=2).encode() + b"\n")
    _log.warning(
        "event=log_truncated from=%d to=%d first_record=%d kept_in=%s reason=%r",
        start, end, record_offset, folder, reason,
    )  # fmt: skip
    return folder


def _copy(disk: Disk, folder: Path, piece: Piece) -> None:
    copy = disk.create(folder / file_name(piece.base + piece.start), piece.end - piece.start, preallocate=False)
    try:
        for at in range(piece.start, piece.end, _COPY_BYTES):
            copy.write(at - piece.start, piece.file.view[at : min(at + _COPY_BYTES, piece.end)])
        copy.sync()
    finally:
        copy.close()
