"""Crash-safe truncation of the log: no crash in the middle makes old records reappear.

1. The intent is written durably to ``<root>/truncate``.
2. Later segments are removed.  The rest of the last one is overwritten with zeros and synced.
3. The intent is removed.

A start that finds an intent completes it first.  Between steps 1 and 3 nothing may be appended: a new record that ends
exactly where an old one begins would make the old one part of the log again.


Content of the sealed file, big-endian: the offset at which the log is to end, i64.
"""

import logging
import struct
from pathlib import Path
from typing import Final

from sprocket.common.failpoints import failpoint
from store.disk.disk import Disk
from store.disk.mapped_file_queue import Detached
from store.disk.sealed_file import read_sealed, write_sealed
from store.log.commit_log import CommitLog
from store.recovery.cut_aside import Piece, copy_aside, first_record

_log = logging.getLogger(__name__)
_KIND: Final = b"TRNC"
_OFFSET: Final = struct.Struct(">q")
_INTENT_WRITTEN: Final = failpoint("truncation.intent_written")
_LOG_CUT: Final = failpoint("truncation.log_cut")
_INTENT_REMOVED: Final = failpoint("truncation.intent_removed")


class Truncation:
    """Truncations of one log.  All methods raise `DiskFull` or `DiskFailed`."""

    def __init__(self, disk: Disk, root: Path, log: CommitLog) -> None:
        self._disk = disk
        self._root = root
        self._log = log
        self.path = root / "truncate"

    def intended(self) -> int | None:
        """Return the offset of a truncation that a crash interrupted; None without one."""
        content = read_sealed(self._disk, self.path, _KIND)
        if isinstance(content, bytes) and len(content) == _OFFSET.size:
            return int(_OFFSET.unpack(content)[0])
        if content is not None:
            # The intent is synced before anything is cut, so nothing was cut.
            _log.warning("event=truncation_intent_removed file=%s reason=%r", self.path, content)
            self._disk.remove(self.path)
        return None

    def begin(self, end: int) -> None:
        """Write the intent to end the log at `end`."""
        write_sealed(self._disk, self.path, _KIND, _OFFSET.pack(end))
        _INTENT_WRITTEN()

    def cut_log(self, end: int) -> None:
        """Cut the log durably.  An intent must exist if anything but zeros lies after `end`."""
        self._log.cut(end)
        _LOG_CUT()

    def finish(self) -> None:
        """Remove the intent.  Call it when queues and positions are cut, too."""
        self._disk.remove(self.path)
        _INTENT_REMOVED()

    def end_log(self, end: int, reason: str, detached: list[Detached], now_ms: int) -> bool:
        """End the log at `end`, for `reason`, during recovery.  Return whether anything but zeros was cut.

        Whole records are copied aside first.  `detached` are files of segments after a gap, which were not opened.
        """
        content = self._content_after(end)
        loose = self._pieces_of(detached)
        pieces = content + loose
        if not pieces:
            # At most zeros of segments that were allocated in advance.
            self.cut_log(end)
            self._remove(detached)
            return False
        record_offset = first_record(pieces)
        if record_offset is None:
            _log.warning("event=log_truncated from=%d to=%d kept_in=none reason=%r", end, _end_of(pieces), reason)
        else:
            copy_aside(self._disk, self._root, pieces, reason, record_offset, now_ms)
        for piece in loose:
            # Nothing else closes it, and an open file keeps its space on the disk.
            piece.file.close()
        self._remove(detached)
        if content:
            self.begin(end)
        self.cut_log(end)
        if content:
            self.finish()
        return True

    def intend(self, end: int, reason: str, now_ms: int) -> None:
        """Copy aside what lies after `end`, durably, and let the next start cut it off.  For a running store.

        Append nothing after this call.
        """
        pieces = self._content_after(end)
        record_offset = first_record(pieces)
        if record_offset is not None:
            copy_aside(self._disk, self._root, pieces, reason, record_offset, now_ms)
        self.begin(end)

    def has_content_after(self, end: int) -> bool:
        """Return whether anything but zeros lies after `end` in the log's segments."""
        return bool(self._content_after(end))

    def _content_after(self, end: int) -> list[Piece]:
        """Return the parts after `end` of the log's segments that are not zero."""
        pieces = []
        for file in self._log.files_between(end, self._log.wrote_offset):
            base = int(file.path.name)
            start = max(0, end - base)
            content_end = file.content_end(start)
            if content_end > start:
                pieces.append(Piece(file, base, start, content_end))
        return pieces

    def _pieces_of(self, detached: list[Detached]) -> list[Piece]:
        pieces = []
        for path, offset, size, _ in detached:
            if size:
                file = self._disk.open(path, preallocate=False)
                content_end = file.content_end(0)
                if content_end:
                    pieces.append(Piece(file, offset, 0, content_end))
                else:
                    file.close()
        return pieces

    def _remove(self, detached: list[Detached]) -> None:
        # The last one first: after a crash the remaining files still lie after a gap.
        for path, _, size, reason in reversed(detached):
            if size is not None:
                _log.warning("event=detached_segment_removed file=%s reason=%r", path, reason)
                self._disk.remove(path)


def _end_of(pieces: list[Piece]) -> int:
    return pieces[-1].base + pieces[-1].end
