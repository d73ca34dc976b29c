"""One open file of the operating system; `store.disk.disk` gives the facts behind its design."""

import contextlib
import mmap
import os
from pathlib import Path
from typing import Final, TypeAlias

from sprocket.common.errors import DiskFailed
from sprocket.common.failpoints import failpoint
from sprocket.common.files.atomic_file import sync_directory
from sprocket.common.files.disk_errors import as_store_error
from sprocket.common.spare_descriptors import NO_DESCRIPTOR, spare_descriptors
from store.disk.file_extents import content_end
from store.disk.file_system_sync import can_sync_file_systems, sync_file_system
from store.disk.new_directories import NewDirectories
from store.disk.page_cache import cached_pages

Content: TypeAlias = bytes | bytearray | memoryview
_WRITE: Final = failpoint("disk.write", takes_error=True)
_SYNC: Final = failpoint("disk.sync", takes_error=True)
_BEFORE_DIRECTORY_SYNC: Final = failpoint("disk.before_directory_sync", takes_error=True)


class RealFile:
    """The `DiskFile` of the operating system."""

    __slots__ = ("_descriptor", "_is_new", "_new_directories", "_reads_ahead", "_view", "path", "size_bytes")

    def __init__(self, path: Path, descriptor: int, size_bytes: int, new_directories: NewDirectories) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._new_directories = new_directories
        self._is_new = False
        self._reads_ahead = True
        self._view: memoryview | None = None

    def is_created(self) -> None:
        """Note that the file's name needs a sync of its own."""
        self._is_new = True

    @property
    def view(self) -> memoryview:
        # Read once: the index reads a segment while retention may close it in another thread.
        view = self._view
        if view is None:
            # A mapping keeps a descriptor of its own.  So a file is mapped only when it is read.
            view = self._mapped()
            if not self._reads_ahead:
                _advise(view, mmap.MADV_RANDOM)
            self._view = view
        return view

    def _mapped(self) -> memoryview:
        descriptor, size_bytes = self._descriptor, self.size_bytes
        return memoryview(
            spare_descriptors.use(lambda: mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ))
        )

    def read_ahead(self, enabled: bool) -> None:
        self._reads_ahead = enabled
        view = self._view
        if view is not None:
            _advise(view, mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM)

    def cached_pages(self) -> bytes:
        # A temporary mapping suffices for a file that is not read: all mappings show the same page cache.
        view = self._view
        return cached_pages(self._mapped() if view is None else view)

    def read(self, position: int, size_bytes: int) -> bytes:
        try:
            return os.pread(self._descriptor, size_bytes, position)
        except OSError as error:
            raise as_store_error(error, "read", self.path) from error

    def write(self, position: int, content: Content) -> None:
        try:
            _WRITE()
            written = os.pwrite(self._descriptor, content, position)
            if written == len(content):
                return
            view = memoryview(content)
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], position + written)
        except OSError as error:
            raise as_store_error(error, "write", self.path) from error

    def sync(self) -> None:
        try:
            _SYNC()
            os.fdatasync(self._descriptor)
            if self._is_new:
                _BEFORE_DIRECTORY_SYNC()
                # Another file may have created these directories, and may not be synced yet.
                unsynced = self._new_directories.above(self.path)
                self._sync_names({self.path.parent, *unsynced})
                self._new_directories.synced(unsynced)
                self._is_new = False
        except OSError as error:
            # Whatever the cause, the kernel may have marked the failed pages clean: never retry.
            raise DiskFailed(f"sync {self.path}: {error}") from error

    def _sync_names(self, directories: set[Path]) -> None:
        """Sync directories, without a descriptor if there is none: what was written is safe and must stay so."""
        try:
            for directory in directories:
                with contextlib.suppress(FileNotFoundError):  # removed, and this file with it
                    sync_directory(directory)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not can_sync_file_systems():
                raise
            sync_file_system(self._descriptor)

    @property
    def device(self) -> int:
        """Device number of its file system."""
        return os.fstat(self._descriptor).st_dev

    def is_synced(self) -> None:
        """Note that its file system was synced as a whole, names included."""
        self._is_new = False

    def content_end(self, position: int) -> int:
        try:
            return content_end(self._descriptor, position, self.size_bytes)
        except OSError as error:
            raise as_store_error(error, "read", self.path) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._view = None

    def __del__(self) -> None:
        # A store that is dropped without a shutdown must not keep its descriptors until the process ends.
        self.close()


def _advise(view: memoryview, advice: int) -> None:
    mapping = view.obj
    assert isinstance(mapping, mmap.mmap)
    # If the system refuses the advice, the content is the same.
    with contextlib.suppress(OSError):
        mapping.madvise(advice)
