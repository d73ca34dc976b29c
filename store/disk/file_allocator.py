"""Creation of the next CommitLog segment before it is needed, in a thread of its own.

Source: RocketMQ 5.3.3, `AllocateMappedFileService`, `DefaultMappedFile.warmMappedFile`.
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
    """One file to create, by the allocator's thread or by the owner, whichever comes first.

    `warm_bytes`: the thread also fills the file with zeros, and syncs after each `warm_bytes` bytes.  0: no warming.
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
        """Create the file, unless that was tried or canceled.  Wait while another thread creates it."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                try:
                    _BEFORE_PREPARE()
                    self.file = self._disk.create(self.path, self._size_bytes, preallocate=True)
                    _PREPARED()
                except StoreError:
                    # Not an error yet: `take` tries again when the file is needed, and raises the error of that try.
                    self.file = None

    def warm(self) -> None:
        """Write zeros to the file until it is full or needed.  Remove it if a write fails.

        The first write to a reserved block changes the file system's journal, and its sync waits for that.  With
        SYNC_FLUSH this is a large part of the slowest sends.
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
                # No message is in it: `take` creates the file again, and raises the error of that try.
                _log.warning("event=prepared_segment_dropped file=%s reason=%r", self.path, str(error))
                self.file = None
                file.close()
                with contextlib.suppress(StoreError):
                    self._disk.remove(self.path)

    def taken(self) -> DiskFile | None:
        """Return the file, after creating it if necessary; None if that failed."""
        self._is_wanted = True
        self.make()
        return self.file

    def give_up(self) -> None:
        """Cancel the request: remove the file if it was created."""
        self._is_wanted = True
        with self._lock:
            self._is_open = False
            if self.file is not None:
                self.file.close()
                _DISCARDED()
                try:
                    self._disk.remove(self.path)
                except StoreError as error:
                    # It holds only zeros and follows the log's end: the next start uses it.
                    _log.warning("event=prepared_segment_not_removed file=%s reason=%r", self.path, str(error))


class FileAllocator:
    """Keeper of at most one prepared file.  Its thread starts with the first request."""

    def __init__(self, disk: Disk, workers: Workers = ThreadWorker, warm_bytes: int = 0) -> None:
        self._disk = disk
        # May change: it holds for the next file.
        self._warm_bytes = warm_bytes
        self._ahead: _Request | None = None
        self._worker = workers("store-allocate", self._turn)

    def configure(self, warm_bytes: int) -> None:
        """Take a changed `warm_bytes`, for files from the next one on."""
        self._warm_bytes = warm_bytes

    def prepare(self, path: Path, size_bytes: int) -> None:
        """Request the file at `path`, unless it is requested already.  Return at once."""
        if self._ahead is not None and self._ahead.path == path:
            return
        self.discard()
        self._ahead = _Request(self._disk, path, size_bytes, self._warm_bytes)
        self._worker.start()
        self._worker.wake()

    def take(self, path: Path, size_bytes: int) -> DiskFile:
        """Return the file at `path`: the prepared one, or a file created now.  Raises `DiskFull` or `DiskFailed`."""
        ahead = self._ahead
        if ahead is not None and ahead.path == path:
            file = ahead.taken()
            self._ahead = None
            if file is not None:
                _TAKEN()
                return file
        return self._disk.create(path, size_bytes, preallocate=True)

    def close(self) -> None:
        """Stop the thread, and remove a prepared file that was not taken."""
        self.discard()
        self._worker.stop()

    def discard(self) -> None:
        """Remove a prepared file that was not taken."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.give_up()

    def _turn(self) -> bool:
        ahead = self._ahead
        if ahead is not None:
            ahead.make()
            ahead.warm()
        return True
