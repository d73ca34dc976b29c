"""Cuts the end off the log so that no crash in the middle lets any of it come back.

The intent is written first, durably, to ``<root>/truncate``.  Then later segments are removed, the rest of the last one
is overwritten with zeros and synced, and the intent is removed.  A start that finds an intent completes it before it
looks at anything else.  Between intent and its removal nothing may be appended: so a later record that ends exactly
where an old one begins cannot make the old one part of the log again.

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
    """Truncations of one log.  All raise `DiskFull` or `DiskFailed` if the disk does not let us."""

    def __init__(self, disk: Disk, root: Path, log: CommitLog) -> None:
        self._disk = disk
        self._root = root
        self._log = log
        self.path = root / "truncate"

    def intended(self) -> int | None:
        """The offset of a truncation that a crash broke off; None without one."""
        content = read_sealed(self._disk, self.path, _KIND)
        if isinstance(content, bytes) and len(content) == _OFFSET.size:
            return int(_OFFSET.unpack(content)[0])
        if content is not None:
            # It is synced before anything is cut: so nothing was.
            _log.warning("file=%s action=removed reason=%r", self.path, content)
            self._disk.remove(self.path)
        return None

    def begin(self, end: int) -> None:
        """Write the intent to let the log end at `end`."""
        write_sealed(self._disk, self.path, _KIND, _OFFSET.pack(end))
        _INTENT_WRITTEN()

    def cut_log(self, end: int) -> None:
        """Cut the log: durable when this returns.  Needs an intent if there is anything but zeros behind `end`."""
        self._log.cut(end)
        _LOG_CUT()

    def finish(self) -> None:
        """Queues and positions are cut too: remove the intent."""
        self._disk.remove(self.path)
        _INTENT_REMOVED()

    def end_log(self, end: int, reason: str, detached: list[Detached], now_ms: int) -> bool:
        """Recovery: the log ends at `end`, for `reason`; keep what is worth it and cut.  Return whether it was cut.

        `detached` are the segments' files that were not opened, because they do not fit behind the others.
        """
        content = self._content_behind(end)
        loose = self._pieces_of(detached)
        pieces = content + loose
        if not pieces:
            # Zeros at the most, of segments that were made ahead.
            self.cut_log(end)
            self._remove(detached)
            return False
        record_offset = first_record(pieces)
        if record_offset is None:
            _log.warning("action=cut-log from=%d to=%d kept=none reason=%r", end, _end_of(pieces), reason)
        else:
            copy_aside(self._disk, self._root, pieces, reason, record_offset, now_ms)
        for piece in loose:
            # Nobody else does, and the disk would not get back what it takes.
            piece.file.close()
        self._remove(detached)
        if content:
            self.begin(end)
        self.cut_log(end)
        if content:
            self.finish()
        return True

    def intend(self, end: int, reason: str, now_ms: int) -> None:
        """While the store runs: keep aside what lies behind `end`, durably, and let the next start cut it off.

        Nothing may be appended from here on.
        """
        pieces = self._content_behind(end)
        record_offset = first_record(pieces)
        if record_offset is not None:
            copy_aside(self._disk, self._root, pieces, reason, record_offset, now_ms)
        self.begin(end)

    def has_content_behind(self, end: int) -> bool:
        """Whether anything but zeros lies behind `end` in the segments of the log."""
        return bool(self._content_behind(end))

    def _content_behind(self, end: int) -> list[Piece]:
        """What is not zero behind `end` in the segments of the log."""
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
        # The last first: what a crash leaves is still behind a gap.
        for path, _, size, reason in reversed(detached):
            if size is not None:
                _log.warning("file=%s action=removed reason=%r", path, reason)
                self._disk.remove(path)


def _end_of(pieces: list[Piece]) -> int:
    return pieces[-1].base + pieces[-1].end
