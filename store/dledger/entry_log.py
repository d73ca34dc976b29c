"""Reader of the entries of a DLedger store: RocketMQ's log in the mode enableDLegerCommitLog.

``<root>/dledger-<dLegerSelfId>/data`` holds files of one size, each named by the position of its first byte.  An entry
never crosses the end of a file; the blank before that end begins with -1.  An entry is a head of 48 bytes and a body.
The body is one record of a CommitLog; an empty body says only that a leader began.

Source: io.openmessaging.storage:dledger 0.3.1.2, `DLedgerEntryCoder`, `DLedgerMmapFileStore.recover`.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sprocket.common.errors import CorruptRecord, StoreError
from store.inspection.file_sequence import FileSequence, PartFile

# magic i32, size i32, index i64, term i64, position i64, channel i32, CRC of the chain i32, CRC of the body i32,
# bytes of the body i32.  RocketMQ sets neither CRC: the record in the body has one of its own.
_HEAD: Final = struct.Struct(">iiqqqiiii")
BODY_AT: Final = _HEAD.size
_MAGIC: Final = 1
_MAGIC_BYTES: Final = struct.pack(">i", _MAGIC)
_BLANK: Final = -1

Progress = Callable[[int], None]


class Entry(NamedTuple):
    """One entry: its number and term in the group's log, its position in the files, and its body."""

    number: int
    term: int
    position: int
    body: memoryview


class EntryLog:
    """Entries of the files in ``<folder>/data``.

    Raises `StoreError` if there are none, or a file is missing or has another size.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = FileSequence(folder / "data")
        files = self._files
        if not files.parts:
            raise StoreError(f"{files.directory}: there are no files of DLedger")
        for number, part in enumerate(files.parts):
            start = files.parts[0].start + number * files.file_bytes
            if part.start != start or part.size_bytes != files.file_bytes:
                raise StoreError(
                    f"{part.path}: {part.size_bytes} bytes at position {part.start}, expected are {files.file_bytes} "
                    f"at {start}; use the files of another broker of the group"
                )

    @property
    def file_bytes(self) -> int:
        """Size of one file."""
        return self._files.file_bytes

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return len(self._files.parts) * self._files.file_bytes

    def entries(self, progress: Progress = lambda size_bytes: None) -> Iterator[Entry]:
        """Yield all whole entries in order.

        The log ends at the first bytes of the last file that are no entry.  Raises `CorruptRecord` if entries follow.
        """
        last: Entry | None = None
        for number, part in enumerate(self._files.parts):
            data = self._files.view(part).data
            at = 0
            while at + BODY_AT <= len(data) and (reason := self._reason_against(part, data, at, last)) is None:
                _, size, index, term, position, *_ = _HEAD.unpack_from(data, at)
                last = Entry(index, term, position, data[at + BODY_AT : at + size])
                yield last
                at += size
            progress(part.size_bytes)
            is_blank = at + 4 > len(data) or int.from_bytes(data[at : at + 4], "big", signed=True) == _BLANK
            if not is_blank and (number + 1 < len(self._files.parts) or self._has_entries(part, data, at)):
                raise CorruptRecord(
                    part.start + at, f"{part.path}: no entry of DLedger at {at}: {reason}; entries follow. Use the "
                    "files of another broker of the group",
                )  # fmt: skip

    @staticmethod
    def _reason_against(part: PartFile, data: memoryview, at: int, last: Entry | None) -> str | None:
        """Return why no entry begins at `at`; None if one does."""
        magic, size, index, term, position, _, _, _, body_bytes = _HEAD.unpack_from(data, at)
        if magic != _MAGIC:
            return f"magic number {magic}"
        if position != part.start + at:
            return f"it says position {position}"
        if body_bytes < 0 or size != BODY_AT + body_bytes or at + size > len(data):
            return f"it has {size} bytes, its body {body_bytes}"
        if last is not None and (index != last.number + 1 or term < last.term):
            return f"index {index} of term {term} follows {last.number} of term {last.term}"
        return None

    def _has_entries(self, part: PartFile, data: memoryview, start: int) -> bool:
        """Return whether an entry begins after `start`.  Its position proves that it is none by chance."""
        content = bytes(data[start : self._files.view(part).end_of_content(start)])
        at = content.find(_MAGIC_BYTES, 1)
        while at >= 0:
            if start + at + BODY_AT <= len(data) and self._reason_against(part, data, start + at, None) is None:
                return True
            at = content.find(_MAGIC_BYTES, at + 1)
        return False
