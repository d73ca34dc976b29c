"""Makes the next CommitLog segment ahead of its need, in a thread of its own.

Source of the idea: RocketMQ 5.3.3, `AllocateMappedFileService`, `DefaultMappedFile.warmMappedFile`.
"""

import contextlib
import logging
import threading
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from sprocket.common.failpoints import failpoint
from store.disk.disk import Disk, DiskFile
from store.worker import ThreadWorker, Workers

_log = logging.getLogger(__name__)
_WARM_STEP_BYTES: Final = 1024 * 1024
_BEFORE_PREPARE: Final = failpoint("file_allocator.before_prepare")
_PREPARED: Final = failpoint("file_allocator.prepared")
_TAKEN: Final = failpoint("file_allocator.taken")
_DISCARDED: Final = failpoint("file_allocator.discarded")


class _Request:
    """One file to make, by whoever comes first: the thread, or the one who needs it.

    `warm_bytes`: the thread also writes the file full of zeros, with a sync for each so many bytes; 0 for not at all.
    """

    def __init__(self, disk: Disk, path: Path, size_bytes: int, warm_bytes: int) -> None:
        self._disk = disk
        self._warm_bytes = warm_bytes
        self._is_wanted = False
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._is_open = True
        self.path = path
        self.file: DiskFile | None = None

    def make(self) -> None:
        """Make the file unless that was tried or given up; waits while another thread is at it."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                try:
                    _BEFORE_PREPARE()
                    self.file = self._disk.create(self.path, self._size_bytes, preallocate=True)
                    _PREPARED()
                except StoreError:
                    # Not an error yet: `take` tries again when the file is needed and raises what it meets.
                    self.file = None

    def warm(self) -> None:
        """Write zeros to the file until it is full or wanted.  A file that does not take them is dropped.

        Reserved blocks are none that were written, and the first sync of each waits for the file system's journal to
        say that they are: a good part of the tail of SYNC_FLUSH.
        """
        with self._lock:
            file = self.file
            if file is None or not self._warm_bytes:
                return
            zeros, unsynced = bytes(min(_WARM_STEP_BYTES, self._size_bytes)), 0
            try:
                for at in range(0, self._size_bytes, _WARM_STEP_BYTES):
                    if self._is_wanted:
                        break
                    step = zeros[: self._size_bytes - at]
                    file.write(at, step)
                    unsynced += len(step)
                    if unsynced >= self._warm_bytes:
                        file.sync()
                        unsynced = 0
                if unsynced:
                    file.sync()
            except StoreError as error:
                # No message is in it: `take` makes the file anew, and raises what it meets.
                _log.warning("file=%s action=dropped reason=%r", self.path, str(error))
                self.file = None
                file.close()
                with contextlib.suppress(StoreError):
                    self._disk.remove(self.path)

    def taken(self) -> DiskFile | None:
        """The file, made now if it was not; None if it cannot be had."""
        self._is_wanted = True
        self.make()
        return self.file

    def give_up(self) -> None:
        """Remove the file if it was made, and do not make it any more."""
        self._is_wanted = True
        with self._lock:
            self._is_open = False
            if self.file is not None:
                self.file.close()
                _DISCARDED()
                try:
                    self._disk.remove(self.path)
                except StoreError as error:
                    # It is full of zeros and behind the log's end: the next start takes it along.
                    _log.warning("file=%s action=left reason=%r", self.path, str(error))


class FileAllocator:
    """Keeps at most one file ready.  The thread starts with the first request."""

    def __init__(self, disk: Disk, workers: Workers = ThreadWorker, warm_bytes: int = 0) -> None:
        self._disk = disk
        # May be changed: the next file is made with it.
        self.warm_bytes = warm_bytes
        self._ahead: _Request | None = None
        self._worker = workers("store-allocate", self._turn)

    def prepare(self, path: Path, size_bytes: int) -> None:
        """Have the file at `path` made, unless it was asked for already.  Returns at once."""
        if self._ahead is not None and self._ahead.path == path:
            return
        self.discard()
        self._ahead = _Request(self._disk, path, size_bytes, self.warm_bytes)
        self._worker.start()
        self._worker.wake()

    def take(self, path: Path, size_bytes: int) -> DiskFile:
        """The file at `path`: the prepared one, or made now.  Raises `DiskFull` or `DiskFailed`."""
        ahead = self._ahead
        if ahead is not None and ahead.path == path:
            file = ahead.taken()
            self._ahead = None
            if file is not None:
                _TAKEN()
                return file
        return self._disk.create(path, size_bytes, preallocate=True)

    def close(self) -> None:
        """Stop the thread and remove a file that was prepared but not taken."""
        self.discard()
        self._worker.stop()

    def discard(self) -> None:
        """Remove a file that was prepared but not taken."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.give_up()

    def _turn(self) -> bool:
        ahead = self._ahead
        if ahead is not None:
            ahead.make()
            ahead.warm()
        return True
