"""Limit of the open files of ConsumeQueues: files not used lately are closed, and opened again on demand.

A broker may have more queues than a process may have descriptors.  A file that is read holds two descriptors, because
Python's mapping keeps one of its own.  `PooledDisk` wraps the disk; its files are open only while they are needed.  A
file with unsynced writes is never closed: an error of its sync would be lost with the descriptor.
"""

import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sprocket.common.errors import DiskFailed, StoreError
from store.disk.disk import Content, Disk, DiskFile

_MIN_BUDGET: Final = 64
_MAX_BUDGET: Final = 65_536
# Descriptors of an open file, and those that its mapping adds.
_OPEN: Final = 1
_MAPPED: Final = 1


def descriptor_budget() -> int:
    """Return a quarter of this process's limit of descriptors: the rest is for connections and the log."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_BUDGET if soft == resource.RLIM_INFINITY else max(_MIN_BUDGET, min(soft // 4, _MAX_BUDGET))


class PooledFile:
    """A `DiskFile` that is open only while it is in use.  Slices of its views stay valid."""

    __slots__ = (
        "_disk", "_file", "_preallocate", "_view", "descriptors", "is_closing", "is_dirty", "path", "pins", "was_used",
    )  # fmt: skip

    def __init__(self, disk: "PooledDisk", path: Path, file: DiskFile | None, preallocate: bool) -> None:
        self.path = path
        self._disk = disk
        self._file = file
        self._preallocate = preallocate
        self._view: memoryview | None = None
        self.descriptors = 0 if file is None else _OPEN
        self.is_dirty = file is not None
        self.was_used = True
        # Number of threads that sync it now.  It is closed after the last of them.
        self.pins = 0
        self.is_closing = False

    @property
    def view(self) -> memoryview:
        self.was_used = True
        view = self._view
        if view is None:
            file = self._opened()
            self._disk.make_room_to_map(self)
            view = self._view = file.view
            self._disk.took(self, _MAPPED)
        return view

    def read(self, position: int, size_bytes: int) -> bytes:
        view = self._view
        if view is not None:
            return bytes(view[position : position + size_bytes])
        return self._opened().read(position, size_bytes)

    def write(self, position: int, content: Content) -> None:
        self.was_used = True
        file = self._file
        if file is None:
            file = self._opened()
        try:
            file.write(position, content)
        finally:
            # After the write: a sync that began before the write ended may not cover it.
            if not self.is_dirty:
                self.is_dirty = True
                self._disk.count_dirty(1)

    def sync(self) -> None:
        self._disk.sync_many((self,))

    def content_end(self, position: int) -> int:
        return self._opened().content_end(position)

    def read_ahead(self, enabled: bool) -> None:
        """Do nothing: dataReadAheadEnable is for the CommitLog only."""

    def cached_pages(self) -> bytes:
        return self._opened().cached_pages()

    def close(self) -> None:
        """Close the file until its next use, if any."""
        self._disk.forget(self)

    def release(self) -> None:
        """Close the descriptors."""
        file, self._file, self._view, self.descriptors = self._file, None, None, 0
        if file is not None:
            file.close()

    def take(self) -> DiskFile | None:
        """Return the open file, for a sync; None if it is closed and so has nothing to sync."""
        return self._file

    def _opened(self) -> DiskFile:
        file = self._file
        if file is None:
            file = self._disk.reopen(self.path, self._preallocate)
            self._file = file
            self._disk.took(self, _OPEN)
        return file


class PooledDisk:
    """A `Disk` whose files are open only while needed: at most `budget` descriptors, plus files that cannot be closed.

    One thread reads and writes files; `sync` may run in another.  The writing thread calls `on_pressure` when so many
    files are unsynced that closing files will soon have to wait for syncs.
    """

    def __init__(self, disk: Disk, budget: int) -> None:
        self._real = disk
        # What opens no file for longer than the call.
        self.peek, self.read, self.write_small = disk.peek, disk.read, disk.write_small
        self.names, self.entries, self.size, self.used_ratio = disk.names, disk.entries, disk.size, disk.used_ratio
        self.rename, self.remove, self.remove_files = disk.rename, disk.remove, disk.remove_files
        self.remove_tree, self.sync_entries, self.lock = disk.remove_tree, disk.sync_entries, disk.lock
        self._budget = budget
        self._open: OrderedDict[PooledFile, None] = OrderedDict()  # the longest unused first
        self._used = 0
        self._dirty = 0
        self._lock = threading.RLock()
        self._failure: DiskFailed | None = None
        self.on_pressure: list[Callable[[], None]] = []

    @property
    def descriptors(self) -> int:
        """Number of descriptors in use."""
        return self._used

    @property
    def is_under_pressure(self) -> bool:
        """Whether more files than a quarter of the budget have unsynced writes."""
        return self._dirty > self._budget // 4

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> PooledFile:
        self._make_room()
        file = PooledFile(self, path, self._real.create(path, size_bytes, preallocate=preallocate), preallocate)
        self.count_dirty(1)
        with self._lock:
            self.took(file, 0)
            self._used += file.descriptors
        return file

    def open(self, path: Path, *, preallocate: bool) -> PooledFile:
        """Return the file; its first use opens it."""
        return PooledFile(self, path, None, preallocate)

    def sync_many(self, files: Sequence[DiskFile]) -> None:
        """Do `Disk.sync_many`.  A failure is final: the next sync would succeed although pages are lost."""
        if self._failure is not None:
            raise DiskFailed(str(self._failure))
        pinned = [
            (file, real) for file in files if isinstance(file, PooledFile) and (real := self.pin(file, for_sync=True))
        ]
        try:
            self._real.sync_many([real for _, real in pinned])
        except StoreError as error:
            self._failure = error if isinstance(error, DiskFailed) else DiskFailed(str(error))
            raise self._failure from error
        finally:
            for file, _ in pinned:
                self.unpin(file)

    # Called by the files

    def reopen(self, path: Path, preallocate: bool) -> DiskFile:
        """Open a file now.  Raises `DiskFailed`."""
        self._make_room()
        return self._real.open(path, preallocate=preallocate)

    def took(self, file: PooledFile, descriptors: int) -> None:
        """Count `descriptors` more for `file`; 0 for a new file, which is registered."""
        with self._lock:
            if file.descriptors == 0 or descriptors == 0:
                self._open[file] = None
            file.descriptors += descriptors
            self._used += descriptors

    def count_dirty(self, change: int) -> None:
        """Add `change` to the number of files with unsynced writes."""
        with self._lock:
            self._dirty += change
            pressed = change > 0 and self._dirty == self._budget // 4 + 1
        if pressed:
            for listener in self.on_pressure:
                listener()

    def pin(self, file: PooledFile, *, for_sync: bool = False) -> DiskFile | None:
        """Keep `file` open until `unpin`, and return it; None if it is closed.  `for_sync`: a sync begins now."""
        with self._lock:
            opened = file.take()
            if opened is not None:
                file.pins += 1
                if for_sync and file.is_dirty:
                    # Before the sync: the sync may not cover writes from now on.
                    file.is_dirty = False
                    self._dirty -= 1
            return opened

    def unpin(self, file: PooledFile) -> None:
        """End one `pin`; close the file if that was requested meanwhile."""
        with self._lock:
            file.pins -= 1
            if file.is_closing and not file.pins:
                file.is_closing = False
                self.forget(file)

    def forget(self, file: PooledFile) -> None:
        """Close `file`, now or after the syncs that run."""
        with self._lock:
            if file.is_dirty:
                file.is_dirty = False
                self._dirty -= 1
            if file.pins:
                file.is_closing = True
            else:
                self._used -= file.descriptors
                self._open.pop(file, None)
                file.release()

    def make_room_to_map(self, file: PooledFile) -> None:
        """Close other files until `file` may be mapped."""
        if self._used + _MAPPED > self._budget:
            self.pin(file)
            try:
                self._make_room()
            finally:
                self.unpin(file)

    def _make_room(self) -> None:
        """Close files until one more mapped file is within the budget."""
        if self._used + _OPEN + _MAPPED <= self._budget:
            return
        if not self._close_some() and self._failure is None:
            # All files are unsynced: the syncs did not keep up with the writes.
            with self._lock:
                unsynced = [file for file in self._open if file.is_dirty]
            self.sync_many(unsynced)
            self._close_some()

    def _close_some(self) -> bool:
        """Close files not used since the last check, oldest first, down to three quarters of the budget.

        Return whether one more mapped file is now within the budget.
        """
        target = self._budget * 3 // 4
        with self._lock:
            for _ in range(2 * len(self._open)):
                if self._used <= target or not self._open:
                    break
                file = next(iter(self._open))
                if file.was_used or file.is_dirty or file.pins:
                    file.was_used = False
                    self._open.move_to_end(file)
                else:
                    self.forget(file)
            return self._used + _OPEN + _MAPPED <= self._budget
