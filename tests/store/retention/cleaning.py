"""A store whose threads take their turns when the test says so, on a disk as full as the test says."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sprocket.common.errors import DiskFailed
from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk
from store.message_store import MessageStore
from store.queue.logic_queue import QueueType
from tests.clock import ManualClock
from tests.store.insides import close_files, flush_queues
from tests.store.rig import message

HOUR_S = 3600.0
# Three records of a body this long fill a segment.
SEGMENT_BYTES = 4096
BODY = bytes(1150)
PER_SEGMENT = 3


class HandWorker:
    """A worker that takes a turn when `take_turn` is called."""

    def __init__(self, turn: Callable[[], bool]) -> None:
        self._turn = turn
        self.is_running = False

    def start(self) -> None:
        self.is_running = True

    def wake(self) -> None:
        pass

    def pace(self, interval_s: float | None) -> None:
        pass

    def stop(self) -> None:
        self.is_running = False

    def take_turn(self) -> None:
        if self.is_running:
            self._turn()


class FilledDisk(RealDisk):
    """Real disk, as full as `log_used` and `queues_used` say.  It notes removals, and fails them on request."""

    def __init__(self) -> None:
        super().__init__()
        self.log_used = self.queues_used = 0.5
        self.removed: list[str] = []
        self.remove_fails = False

    def used_ratio(self, path: Path) -> float:
        return self.log_used if path.name == "commitlog" else self.queues_used

    def remove(self, path: Path) -> None:
        if self.remove_fails:
            raise DiskFailed(f"remove {path}")
        self.removed.append(f"{path.parent.name}/{path.name}")
        super().remove(path)


class CleanedStore:
    """Stores on one directory, whose threads are turned by hand."""

    def __init__(self, root: Path, queue_types: dict[str, QueueType] | None = None, **fields: Any) -> None:
        self.root = root
        self.queue_types = queue_types or {}
        self.clock = ManualClock()
        self.disk = FilledDisk()
        self.fields: dict[str, Any] = {
            "mapped_file_size_commit_log": SEGMENT_BYTES,
            "mapped_file_size_consume_queue": 20 * 4,
            "flush_commit_log_least_pages": 0,
            "delete_commit_log_files_interval": 0,
            "delete_consume_queue_files_interval": 0,
            # Not the present hour: tests set it when they want it.
            "delete_when": f"{(self.hour() + 12) % 24:02}",
        } | fields
        self.notified: list[Callable[[], None]] = []
        self.open()

    def hour(self) -> int:
        from datetime import datetime

        return datetime.fromtimestamp(self.clock.wall_ms() / 1000).hour

    def open(self) -> None:
        self.workers: dict[str, HandWorker] = {}
        config = StoreConfig(store_path_root_dir=self.root, **self.fields)

        def worker(name: str, turn: Callable[[], bool], interval_s: float | None = None) -> HandWorker:
            self.workers[name] = HandWorker(turn)
            return self.workers[name]

        self.store = MessageStore(
            config, clock=self.clock, notify=self.notified.append, disk=self.disk, workers=worker,
            queue_type_of=self.queue_types.get,
        )  # fmt: skip
        self.store.start()

    def reopen(self, *, crash: bool = False) -> None:
        if crash:
            for worker in self.workers.values():
                worker.stop()
            self.store.cleaner._segment = None
            close_files(self.store)
        else:
            self.store.shutdown()
        self.notified.clear()
        self.open()

    def close(self) -> None:
        close_files(self.store)

    def configure(self, **fields: Any) -> None:
        self.fields |= fields
        self.store.configure(StoreConfig(store_path_root_dir=self.root, **self.fields))

    def run_notified(self) -> None:
        while self.notified:
            self.notified.pop(0)()

    def flush(self) -> None:
        """Flush everything."""
        self.workers["store-flush"].take_turn()
        self.run_notified()
        flush_queues(self.store)

    def fill(self, segments: int, topic: str = "Orders", queue_id: int = 0, *, hours_each: float = 0.0) -> None:
        """Append and flush messages for this many segments, each `hours_each` after the one before."""
        for _ in range(segments * PER_SEGMENT):
            self.store.append([message(topic=topic, queue_id=queue_id, body=BODY)])
            self.clock.advance(hours_each * HOUR_S / PER_SEGMENT)
        self.flush()

    def clean(self, rounds: int = 1, turns: int = 12) -> None:
        """Let `rounds` of cleaning pass, each with time for many removals."""
        for _ in range(rounds):
            self.clock.advance(10.0)
            for _ in range(turns):
                self.clock.advance(0.0)
                self.workers["store-clean"].take_turn()
                self.run_notified()

    def segments(self) -> list[int]:
        """Return the numbers of the existing segment files."""
        return [int(path.name) // SEGMENT_BYTES for path in sorted((self.root / "commitlog").iterdir())]

    def queue_files(self, topic: str = "Orders", queue_id: int = 0) -> list[int]:
        """Return the first offsets of the queue's existing files."""
        directory = self.root / "consumequeue" / topic / str(queue_id)
        return [int(path.name) // 20 for path in sorted(directory.iterdir())]

    def range(self, topic: str = "Orders", queue_id: int = 0) -> tuple[int, int]:
        return self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)


def first_size(piece: memoryview) -> int:
    """Return the size in the first record of a slice."""
    (size,) = struct.unpack_from(">i", piece)
    return int(size)
