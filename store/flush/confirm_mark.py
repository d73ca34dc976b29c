"""Up to where consumers may see, for those who read the files: ``<root>/confirm``.

The log on the disk reaches further than the confirm offset while a sync or the replicas are behind: with SYNC_FLUSH,
and with SYNC_MASTER.  Who reads the segments beside the broker, Spark or a backup, must not take what lies behind it.
While nothing holds the confirm offset back, the log's last whole record is the limit, and there is no mark.

It is overwritten in place about once a second while the store runs, so it is behind the true offset and never ahead,
and it is not synced: a restart confirms the whole recovered log, so what a mark says ends with the run that wrote it.
A clean stop removes it.  After a kill it is left behind; a reader tells that by the lock of the store, or by its age.

Content of the sealed file, big-endian: the offset, i64; when it was written, wall clock, ms, i64.  RocketMQ ignores it.
"""

import logging
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from store.disk.disk import Disk, DiskFile
from store.disk.sealed_file import seal, unseal

if TYPE_CHECKING:  # who only reads the mark does without the store
    from store.flush.confirmation import Confirmation

_log = logging.getLogger(__name__)
CONFIRM_MARK: Final = "confirm"
_KIND: Final = b"CNFM"
_FIELDS: Final = struct.Struct(">qq")
# An offset that stands still is written again so often: a reader sees that somebody is there.
_REFRESH_MS: Final = 10_000


class ConfirmMark:
    """The mark of one store.  All in one thread, after `open`."""

    def __init__(self, disk: Disk, clock: Clock, root: Path, confirmation: "Confirmation") -> None:
        self._disk = disk
        self._clock = clock
        self._confirmation = confirmation
        self.path = root / CONFIRM_MARK
        self._file: DiskFile | None = None
        # Offset and time of the last note; before the first turn a killed run's mark may be there.
        self._written = (-1, 0)
        self._may_exist = True
        self._is_broken = False

    def write(self) -> None:
        """Note the confirm offset if anything holds it back, else remove the mark.

        An error ends the notes and nothing else: readers stay behind the last one, and a broken disk shows elsewhere.
        """
        if self._is_broken:
            return
        try:
            if self._confirmation.is_limited:
                self._note()
            elif self._may_exist:
                self.remove()
        except StoreError as error:
            self._is_broken = True
            _log.warning("file=%s action=not-kept-any-longer reason=%r", self.path, str(error))

    def remove(self) -> None:
        """Nothing is held back: the store stops, or a sync and replicas hold nothing back.  Raises `DiskFailed`."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._disk.size(self.path) is not None:
            self._disk.remove(self.path)
        self._may_exist = False

    def _note(self) -> None:
        offset, now_ms = self._confirmation.confirm_offset, self._clock.wall_ms()
        written, at_ms = self._written
        if offset == written and 0 <= now_ms - at_ms < _REFRESH_MS:
            return
        content = seal(_KIND, _FIELDS.pack(offset, now_ms))
        if self._file is None:
            self._file = self._disk.create(self.path, len(content), preallocate=True)
            self._may_exist = True
        self._file.write(0, content)
        self._written = offset, now_ms


def decode_confirm_mark(sealed: bytes) -> tuple[int, int] | str:
    """(confirm offset, wall clock in ms when it was written) in the bytes of a mark, or why there is none in them."""
    content = unseal(_KIND, sealed)
    if isinstance(content, str):
        return content
    if len(content) != _FIELDS.size:
        return f"content has {len(content)} bytes, not {_FIELDS.size}"
    offset, written_ms = _FIELDS.unpack(content)
    return (offset, written_ms) if offset >= 0 else f"offset {offset} is negative"
