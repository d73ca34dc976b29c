"""Changes of a store's files as a journal says.  The edge of this package that writes.

Each step is on the disk before the next one starts: the copies, then the journal, then each action.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.files.atomic_file import replace_file, sync_directory
from sprocket.common.files.regular_file import open_regular, read_regular
from store.disk.file_extents import data_extents
from store.inspection.small_files import REPAIR_PREFIX
from store.repair.filler import fillers
from store.repair.repair_journal import (
    DONE,
    JOURNAL_NAME,
    OPEN,
    UNDONE,
    Action,
    Create,
    Fill,
    Journal,
    Move,
    Resize,
    Restore,
    Write,
    Zero,
    decode,
    encode,
)

_COPY_BYTES: Final = 1 << 20

Step = Callable[[str], None]


def unfinished(root: Path) -> Path | None:
    """Return the side folder of an unfinished repair; None without one."""
    for folder in sorted(root.glob(f"{REPAIR_PREFIX}*")):
        if (folder / JOURNAL_NAME).is_file() and load(folder).state == OPEN:
            return folder
    return None


def load(folder: Path) -> Journal:
    """Return the journal of a side folder.  Raises `StoreError` without one."""
    path = folder / JOURNAL_NAME
    try:
        return decode(read_regular(path), str(path))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


def save(folder: Path, journal: Journal) -> None:
    """Write the journal durably.  Raises `DiskFailed`."""
    try:
        replace_file(folder / JOURNAL_NAME, encode(journal))
        sync_directory(folder.parent)
    except OSError as error:
        raise DiskFailed(f"write {folder / JOURNAL_NAME}: {error}") from error


class RepairFiles:
    """Files of one store and one side folder."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder

    def path(self, name: str) -> Path:
        """Return the file that an action names: under the root, unless the log is elsewhere."""
        return self.root / name

    def keep(self, actions: list[Action]) -> list[Action]:
        """Copy what the actions will replace into the side folder.  Return the actions with the copies' names."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept: list[Action] = []
        for number, action in enumerate(actions, 1):
            name = f"{number:04d}-{Path(getattr(action, 'path', '')).name}"
            match action:
                case Write():
                    self._copy(action.path, action.position, len(action.content), name)
                case Fill() | Zero():
                    self._copy(action.path, action.position, action.size_bytes, name)
                case Resize(path=path, size_bytes=size, size_before=before) if before > size:
                    self._copy(path, size, before - size, name)
                case Move():
                    pass
                case _:
                    kept.append(action)
                    continue
            kept.append(msgspec.structs.replace(action, kept=name))
        sync_directory(self.folder)
        return kept

    def _copy(self, path: str, position: int, size_bytes: int, name: str) -> None:
        try:
            with os.fdopen(open_regular(self.path(path)), "rb") as source, (self.folder / name).open("wb") as target:
                end = max(position, min(position + size_bytes, os.fstat(source.fileno()).st_size))
                # Without holes: a file of a wrong size may be a sparse one of a tebibyte.
                for at, piece in _pieces(source, data_extents(source.fileno(), position, end)):
                    target.seek(at - position)
                    target.write(piece)
                target.truncate(end - position)
                target.flush()
                os.fsync(target.fileno())
        except FileNotFoundError:
            (self.folder / name).write_bytes(b"")

    def apply(self, action: Action) -> None:
        """Perform one action; repeating it changes nothing more.  Raises `StoreError`."""
        try:
            match action:
                case Write(path=path, position=position, content=content):
                    self._write(path, position, content)
                case Fill(path=path, position=position, size_bytes=size, physical_offset=offset):
                    for at, record in fillers(offset, size, action.timestamp):
                        self._write(path, position + at - offset, record)
                case Zero(path=path, position=position, size_bytes=size):
                    for at in range(0, size, _COPY_BYTES):
                        self._write(path, position + at, bytes(min(_COPY_BYTES, size - at)))
                case Resize(path=path, size_bytes=size):
                    self._resize(path, size)
                case Create(path=path, size_bytes=size, content=content):
                    self.path(path).touch()
                    self._resize(path, size)
                    self._write(path, 0, content)
                case Move(path=path, kept=name):
                    self._move(self.path(path), self.folder / name)
                case Restore(path=path, source=source):
                    replace_file(self.path(path), read_regular(self.path(source)))
        except OSError as error:
            raise DiskFailed(f"repair {getattr(action, 'path', '')}: {error}") from error

    def undo(self, action: Action) -> None:
        """Restore what one action replaced."""
        try:
            match action:
                case Write() | Zero() | Fill():
                    self._restore_bytes(action.path, action.position, action.kept)
                case Resize(path=path, size_before=before, size_bytes=size, kept=name):
                    self._resize(path, before, reserves=False)
                    if name:
                        self._restore_bytes(path, size, name, is_over_zeros=True)
                case Create(path=path) | Restore(path=path):
                    self.path(path).unlink(missing_ok=True)
                case Move(path=path, kept=name):
                    if (self.folder / name).exists():
                        self.remove(self.path(path))
                        self._move(self.folder / name, self.path(path))
        except OSError as error:
            raise DiskFailed(f"undo {getattr(action, 'path', '')}: {error}") from error

    def check_unwritten(self, actions: list[Action]) -> None:
        """Raise `StoreError` if a broker stored messages since where undo would overwrite or cut off bytes."""
        for action in actions:
            match action:
                case Zero(path=path, position=position, size_bytes=size, kept=name):
                    self._check_unwritten(path, position, size, name)
                case Resize(path=path, size_bytes=size, size_before=before) if before < size:
                    blanks = [one for one in actions if isinstance(one, Write) and one.path == path]
                    start = max([before, *(one.position + len(one.content) for one in blanks)])
                    self._check_unwritten(path, start, size - start, "")

    def _check_unwritten(self, path: str, position: int, size_bytes: int, name: str) -> None:
        """Check for zeros, as the repair left them, or for the copy, which a killed undo restored."""
        if not self.path(path).is_file():
            return
        with self.path(path).open("rb") as file, (self.folder / name if name else Path(os.devnull)).open("rb") as kept:
            file.seek(position)
            for at in range(0, size_bytes, _COPY_BYTES):
                now, before = (one.read(min(_COPY_BYTES, size_bytes - at)) for one in (file, kept))
                before = before[: len(now)].ljust(len(now), b"\0")
                if now not in (before, bytes(len(now))) and any(map(_is_new, now, before)):
                    remark = "messages were stored since the repair, and undoing it would destroy them"
                    raise StoreError(f"{self.path(path)}, at or after byte {position + at}: {remark}")

    def remove(self, path: Path) -> None:
        """Remove a file or folder that a repair created."""
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def _write(self, path: str, position: int, content: bytes) -> None:
        with self.path(path).open("r+b") as file:
            file.seek(position)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def _restore_bytes(self, path: str, position: int, name: str, *, is_over_zeros: bool = False) -> None:
        with (self.folder / name).open("rb") as source:
            end = os.fstat(source.fileno()).st_size
            extents = data_extents(source.fileno(), 0, end) if is_over_zeros else [(0, end)]
            for at, piece in _pieces(source, extents):
                self._write(path, position + at, piece)

    def _resize(self, path: str, size_bytes: int, *, reserves: bool = True) -> None:
        with self.path(path).open("r+b") as file:
            file.truncate(size_bytes)
            if size_bytes and reserves:
                # A broker writes into the file through a mapping, or needs its blocks allocated.
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, size_bytes)
            os.fsync(file.fileno())
        sync_directory(self.path(path).parent)

    def _move(self, source: Path, target: Path) -> None:
        # If the target exists this was done before, and the source was created since.
        if source.exists() and not target.exists():
            source.rename(target)
            sync_directory(target.parent)
            sync_directory(source.parent)


def _pieces(source: BinaryIO, extents: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Yield (position, content) of the pieces of a file's `extents`."""
    for start, end in extents:
        for at in range(start, end, _COPY_BYTES):
            source.seek(at)
            yield at, source.read(min(_COPY_BYTES, end - at))


def _is_new(now: int, before: int) -> bool:
    return now not in (0, before)


def mark(folder: Path, journal: Journal, *, undone: bool = False) -> None:
    """Note in the journal that the repair is finished, or undone."""
    journal.state = UNDONE if undone else DONE
    save(folder, journal)
