"""The mark of the confirm offset, for other processes that read the log's files: ``<root>/confirm``.

With SYNC_FLUSH or SYNC_MASTER the log on the disk may be longer than the confirmed part, while a sync or the replicas
lag.  A reader of the segments (Spark, a backup) must not read records after the mark.  If nothing limits the confirm
offset, there is no mark, and the log's last whole record is the limit.

The mark is overwritten in place about once a second while the store runs, so it lags the true offset and never leads
it.  It is not synced: a restart confirms the whole recovered log, so a mark is valid only for the run that wrote it.  A
clean stop removes it.  After a kill it stays; a reader notices that by the lock of the store, or by the mark's age.

Content of the sealed file, big-endian: the offset i64, and the wall clock, ms, at the write i64.  RocketMQ ignores it.
"""

import logging
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError
from store.disk.disk import Disk, DiskFile
from store.disk.sealed_file import seal, unseal

if TYPE_CHECKING:  # a reader of the mark does not need the store
    from store.flush.confirmation import Confirmation

_log = logging.getLogger(__name__)
CONFIRM_MARK: Final = "confirm"
_KIND: Final = b"CNFM"
_FIELDS: Final = struct.Struct(">qq")
# An unchanged offset is written again at this interval, so that a reader sees that the store runs.
_REFRESH_MS: Final = 10_000


class ConfirmMark:
    """The mark of one store.  For one thread."""

    def __init__(self, disk: Disk, clock: Clock, root: Path, confirmation: "Confirmation") -> None:
        self._disk = disk
        self._clock = clock
        self._confirmation = confirmation
        self.path = root / CONFIRM_MARK
        self._file: DiskFile | None = None
        # Offset and time of the last write.  Before the first write, the mark of a killed run may exist.
        self._written = (-1, 0)
        self._may_exist = True
        self._is_broken = False

    def write(self) -> None:
        """Write the confirm offset if anything limits it, else remove the mark.

        After an error it is not written any more.  Readers then stay behind the last mark; the store notices a failed
        disk elsewhere.
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
            _log.warning("event=confirm_mark_disabled file=%s reason=%r", self.path, str(error))

    def remove(self) -> None:
        """Remove the mark: the store stops, or nothing limits the confirm offset.  Raises `DiskFailed`."""
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
    """Return (confirm offset, wall clock in ms of the write) from the bytes of a mark, or why they are invalid."""
    content = unseal(_KIND, sealed)
    if isinstance(content, str):
        return content
    if len(content) != _FIELDS.size:
        return f"content has {len(content)} bytes, not {_FIELDS.size}"
    offset, written_ms = _FIELDS.unpack(content)
    return (offset, written_ms) if offset >= 0 else f"offset {offset} is negative"
