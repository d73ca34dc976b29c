"""How far the log was on the disk at the last sync of it, noted in ``<root>/flushed``.

The checkpoint and the list of queues follow the log by up to a minute.  Between them and the log's end a start could
not tell a record that no sync had covered, which a power cut may tear and recovery cuts off, from one that was
acknowledged and then damaged, which must be refused by name.  The mark says which it is.

It is overwritten in place after each sync of the log and before anybody is answered, and is not synced itself.  It need
not be: a killed process leaves the newest mark in the page cache, and what a power cut leaves is an older one, of an
offset that was on the disk as well.  A torn mark does not match its CRC and says nothing.

Content of the sealed file, big-endian: the offset, i64.  RocketMQ ignores the file.
"""

import logging
import struct
from pathlib import Path
from typing import Final

from sprocket.common.errors import DiskFull, StoreError
from store.disk.disk import Disk, DiskFile
from store.disk.sealed_file import read_sealed, seal

_log = logging.getLogger(__name__)
FLUSHED_MARK_KIND: Final = b"FLSH"
_OFFSET: Final = struct.Struct(">q")


class FlushedMark:
    """The mark of one store.  Lives in the owner thread."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.path = root / "flushed"
        self._file: DiskFile | None = None

    def read(self) -> int:
        """The offset before which the log was on the disk; 0 if nothing says so."""
        content = read_sealed(self._disk, self.path, FLUSHED_MARK_KIND)
        offset = decode_mark(content) if isinstance(content, bytes) else content
        if isinstance(offset, str):
            _log.warning("file=%s action=not-trusted reason=%r", self.path, offset)
            return 0
        return offset or 0

    def open(self, offset: int) -> None:
        """Recovery is done: keep the mark from now on, beginning with `offset`.  Raises `DiskFailed`.

        Without room there is none in this run: what an older one promised was kept by the recovery.
        """
        content = _content(offset)
        try:
            if self._disk.size(self.path) == len(content):
                self._file = self._disk.open(self.path, preallocate=True)
            else:
                self._file = self._disk.create(self.path, len(content), preallocate=True)
            self._file.write(0, content)
        except DiskFull as error:
            _log.warning("file=%s action=not-kept reason=%r", self.path, str(error))
            self.close()

    def note(self, offset: int) -> None:
        """The log is on the disk up to `offset`.

        An error ends the notes and nothing else: the last one stays true, and a disk that is broken shows elsewhere.
        """
        if self._file is None:
            return
        try:
            self._file.write(0, _content(offset))
        except StoreError as error:
            _log.warning("file=%s action=not-kept-any-longer reason=%r", self.path, str(error))
            self.close()

    def lower(self, offset: int) -> None:
        """The log is about to end at `offset`: promise no more, durably.  Raises `DiskFull` or `DiskFailed`."""
        if self.read() > offset:
            self._disk.write_small(self.path, _content(offset))

    def close(self) -> None:
        """Note nothing more."""
        if self._file is not None:
            self._file.close()
            self._file = None


def decode_mark(content: bytes) -> int | str:
    """The offset in a mark's content, or in a few words why it is none."""
    if len(content) != _OFFSET.size:
        return f"content has {len(content)} bytes, not {_OFFSET.size}"
    offset: int = _OFFSET.unpack(content)[0]
    return offset if offset >= 0 else f"offset {offset} is negative"


def _content(offset: int) -> bytes:
    return seal(FLUSHED_MARK_KIND, _OFFSET.pack(offset))
