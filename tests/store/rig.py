"""A store in a temporary directory, with a clock and a disk that the test owns."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sprocket.common.errors import DiskFailed, DiskFull
from sprocket.remoting.codec.java_hash import java_hash_code
from store.config.store_config import StoreConfig
from store.disk.disk import Content, Disk, DiskFile, RealDisk, RealFile
from store.flush.confirmation import ArrivalListener
from store.message_store import MessageStore, PendingMessage
from store.queue.logic_queue import QueueType
from tests.clock import ManualClock
from tests.store.insides import crash

HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")


def message(
    topic: str = "Orders", queue_id: int = 0, body: bytes = b"body", tag: str | None = None, **fields: Any
) -> PendingMessage:
    """A message as the broker hands it over."""
    properties = fields.pop("properties", b"")
    tags_code = 0
    if tag is not None:
        properties += b"TAGS\x01" + tag.encode() + b"\x02"
        tags_code = java_hash_code(tag)
    values: dict[str, Any] = {"flag": 0, "sys_flag": 0, "born_timestamp": 1_600_000_000_000, "born_host": HOST}
    return PendingMessage(topic, queue_id, body, properties, tags_code, **(values | fields))


class FaultyFile:
    """A file that fails when its disk says so."""

    def __init__(self, file: RealFile, disk: "FaultyDisk") -> None:
        self._file = file
        self._disk = disk
        self.path = file.path
        self.size_bytes = file.size_bytes

    @property
    def view(self) -> memoryview:
        if self._disk.view_fails:
            self._disk.failed_views += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._file.view

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._file.read(position, size_bytes)

    def write(self, position: int, content: Content) -> None:
        fault = self._disk.write_fault
        if fault is not None and fault(self.path):
            # As the kernel does: part of it arrives, then the error.
            self._file.write(position, memoryview(content)[: len(content) // 2])
            raise self._disk.write_error(f"write {self.path}")
        self._file.write(position, content)

    def sync(self) -> None:
        self._disk.syncs.append(self.path)
        self._disk.before_sync(self.path)
        if self._disk.sync_fails:
            raise DiskFailed(f"sync {self.path}")
        self._file.sync()

    def content_end(self, position: int) -> int:
        return self._file.content_end(position)

    def read_ahead(self, enabled: bool) -> None:
        self._file.read_ahead(enabled)

    def cached_pages(self) -> bytes:
        return self._file.cached_pages()

    def close(self) -> None:
        self._file.close()


class FaultyDisk(RealDisk):
    """The real disk with faults to order."""

    def __init__(self) -> None:
        super().__init__()
        self.write_fault: Callable[[Path], bool] | None = None
        self.write_error: type[DiskFull] | type[DiskFailed] = DiskFull
        self.create_fails = False
        self.small_write_fails = False
        self.sync_fails = False
        # No descriptor is left for a mapping.
        self.view_fails = False
        self.failed_views = 0
        self.syncs: list[Path] = []
        self.before_sync: Callable[[Path], None] = lambda path: None

    def write_small(self, path: Path, content: bytes) -> None:
        if self.small_write_fails:
            raise DiskFull(f"write {path}")
        super().write_small(path, content)

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> DiskFile:  # type: ignore[override]
        if self.create_fails:
            raise DiskFull(f"create {path}")
        return FaultyFile(super().create(path, size_bytes, preallocate=preallocate), self)

    def open(self, path: Path, *, preallocate: bool) -> DiskFile:  # type: ignore[override]
        return FaultyFile(super().open(path, preallocate=preallocate), self)


class Stores:
    """Opens stores on one directory, and leaves them as a crash would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.disk: Disk = RealDisk()
        self.fields: dict[str, Any] = {
            "mapped_file_size_commit_log": 16 * 1024,
            "mapped_file_size_consume_queue": 20 * 50,
            # However full the machine's disk is.
            "disk_space_warning_level_ratio": 100,
            "clean_file_forcibly_enable": False,
            "max_hash_slot_num": 500,
            "max_index_num": 2_000,
        }
        self.queue_types: dict[str, QueueType] = {}
        self.notified: list[Callable[[], None]] = []
        self.opened: list[MessageStore] = []

    @property
    def config(self) -> StoreConfig:
        return StoreConfig(store_path_root_dir=self.root, **self.fields)

    def new(self) -> MessageStore:
        """A store that is not started."""
        return MessageStore(
            self.config,
            clock=self.clock,
            disk=self.disk,
            notify=self.notified.append,
            queue_type_of=self.queue_types.get,
        )

    def open(self) -> MessageStore:
        store = self.new()
        store.start()
        self.opened.append(store)
        return store

    def crash(self, store: MessageStore) -> None:
        """End the store's threads and descriptors as SIGKILL would: nothing is flushed, `abort` stays."""
        crash(store)
        self.opened.remove(store)

    def close(self, store: MessageStore) -> None:
        store.shutdown()
        self.opened.remove(store)

    def reopen(self, store: MessageStore, *, crash: bool = False) -> MessageStore:
        (self.crash if crash else self.close)(store)
        return self.open()

    def run_notified(self) -> None:
        """What the owner's loop would do."""
        while self.notified:
            self.notified.pop(0)()

    def segments(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    def queue_files(self, topic: str = "Orders", queue_id: int = 0) -> list[Path]:
        return sorted((self.root / "consumequeue" / topic / str(queue_id)).iterdir())

    def close_all(self) -> None:
        for store in list(self.opened):
            self.crash(store)


def noting(seen: list[tuple[str, int, int, int]]) -> ArrivalListener:
    """A listener that adds (topic, queue id, end, first offset) of each arrival to `seen`."""
    return lambda arrivals: seen.extend((queue.topic, queue.queue_id, end, first) for queue, first, end in arrivals)
