"""Offset up to which the last sync brought the log to the disk, noted in ``<root>/flushed``.

The checkpoint and the list of queues are up to a minute older than the log's end.  In that part a start must tell two
cases apart.  A record that no sync covered may be torn by a power cut, and recovery cuts it off.  A record that was
acknowledged and damaged later must be refused by name.  The mark tells which it is.

The mark is overwritten in place after each sync of the log, before any response is sent.  It is not synced itself.  A
killed process leaves the newest mark in the page cache.  A power cut leaves an older mark, whose offset was on the disk
as well.  A torn mark does not match its CRC and is ignored.

Content of the sealed file, big-endian: the offset, i64.  RocketMQ ignores the file.
"""

import logging
import struct
from pathlib import Path
from typing import Final

from sprocket.common.errors import DiskFull, NoDescriptor, StoreError
from store.disk.disk import Disk, DiskFile
from store.disk.sealed_file import read_sealed, seal

_log = logging.getLogger(__name__)
FLUSHED_MARK_KIND: Final = b"FLSH"
_OFFSET: Final = struct.Struct(">q")


class FlushedMark:
    """Mark of one store.  It belongs to the owner thread."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.path = root / "flushed"
        self._file: DiskFile | None = None
        # Whether `open` got no descriptor: then `note` calls it again.
        self._is_put_off = False

    def read(self) -> int:
        """Return the offset before which the log was on the disk; 0 without a valid mark."""
        content = read_sealed(self._disk, self.path, FLUSHED_MARK_KIND)
        offset = decode_mark(content) if isinstance(content, bytes) else content
        if isinstance(offset, str):
            _log.warning("event=flushed_mark_not_trusted file=%s reason=%r", self.path, offset)
            return 0
        return offset or 0

    def open(self, offset: int) -> None:
        """Keep the mark from now on, starting at `offset`.  Call it when recovery is done.  Raises `DiskFailed`.

        On a full disk this run keeps no mark: recovery has already checked what an older mark promised.  Without a
        descriptor it begins with a later `note`.
        """
        content = _content(offset)
        try:
            if self._disk.size(self.path) == len(content):
                self._file = self._disk.open(self.path, preallocate=True)
            else:
                self._file = self._disk.create(self.path, len(content), preallocate=True)
            self._file.write(0, content)
        except DiskFull as error:
            is_put_off = isinstance(error, NoDescriptor)
            if not (is_put_off and self._is_put_off):
                _log.warning("event=flushed_mark_disabled file=%s reason=%r", self.path, str(error))
            self.close()
            self._is_put_off = is_put_off
        else:
            self._is_put_off = False

    def note(self, offset: int) -> None:
        """Note that the log is on the disk up to `offset`.

        After an error it notes nothing more.  The last mark stays true, and other writes report a broken disk.
        """
        try:
            if self._file is not None:
                self._file.write(0, _content(offset))
            elif self._is_put_off:
                self.open(offset)
        except StoreError as error:
            _log.warning("event=flushed_mark_disabled file=%s reason=%r", self.path, str(error))
            self.close()

    def lower(self, offset: int) -> None:
        """Promise no more than `offset`, durably, before the log is cut there.  Raises `DiskFull` or `DiskFailed`."""
        if self.read() > offset:
            self._disk.write_small(self.path, _content(offset))

    def close(self) -> None:
        """Stop noting."""
        self._is_put_off = False
        if self._file is not None:
            self._file.close()
            self._file = None


def decode_mark(content: bytes) -> int | str:
    """Return the offset in a mark's content, or why the content is invalid."""
    if len(content) != _OFFSET.size:
        return f"content has {len(content)} bytes, not {_OFFSET.size}"
    offset: int = _OFFSET.unpack(content)[0]
    return offset if offset >= 0 else f"offset {offset} is negative"


def _content(offset: int) -> bytes:
    return seal(FLUSHED_MARK_KIND, _OFFSET.pack(offset))
