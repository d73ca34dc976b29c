"""Makes the next CommitLog segment ahead of its need, in a thread of its own.

Source of the idea: RocketMQ 5.3.3, `AllocateMappedFileService`.
"""

import queue
import threading
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from store.disk import Disk, DiskFile

_STOP: Final = None


class _Request:
    """One file to make; `done` is set when `file` or nothing is there."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.done = threading.Event()
        self.file: DiskFile | None = None


class FileAllocator:
    """Keeps at most one file ready.  The thread starts with the first request."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._ahead: _Request | None = None
        self._thread: threading.Thread | None = None

    def prepare(self, path: Path, size_bytes: int) -> None:
        """Have the file at `path` made, unless it was asked for already.  Returns at once."""
        if self._ahead is not None and self._ahead.path == path:
            return
        self._discard()
        self._ahead = _Request(path, size_bytes)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store-allocate", daemon=True)
            self._thread.start()
        self._requests.put(self._ahead)

    def take(self, path: Path, size_bytes: int) -> DiskFile:
        """The file at `path`: the prepared one, or made now.  Raises `DiskFull` or `DiskFailed`."""
        ahead = self._ahead
        if ahead is not None and ahead.path == path:
            ahead.done.wait()
            self._ahead = None
            if ahead.file is not None:
                return ahead.file
        return self._disk.create(path, size_bytes, preallocate=True)

    def close(self) -> None:
        """Stop the thread and remove a file that was prepared but not taken."""
        self._discard()
        if self._thread is not None:
            self._requests.put(_STOP)
            self._thread.join()
            self._thread = None

    def _discard(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        ahead.done.wait()
        if ahead.file is not None:
            ahead.file.close()
            self._disk.remove(ahead.path)

    def _run(self) -> None:
        while (request := self._requests.get()) is not _STOP:
            try:
                request.file = self._disk.create(request.path, request.size_bytes, preallocate=True)
            except StoreError:
                # Not an error yet: `take` tries again when the file is needed and raises what it meets.
                request.file = None
            finally:
                request.done.set()
