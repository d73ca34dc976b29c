"""A store on a `SimDisk`: no thread runs, every turn of a worker is a step of the test."""

from collections.abc import Callable
from typing import Any, Final

from store.config.store_config import FlushDiskType, StoreConfig
from store.message_store import MessageStore
from tests.clock import ManualClock
from tests.sim.sim_disk import ROOT, SimDisk

STORE_ROOT: Final = ROOT / "store"
LOG_ROOT: Final = STORE_ROOT / "commitlog"
SEGMENT_BYTES: Final = 32 * 1024
# Flush threads, allocator and index, by the names they go by.
FLUSH: Final = "store-flush"
FLUSH_QUEUES: Final = "store-flush-queues"
ALLOCATE: Final = "store-allocate"
INDEX: Final = "store-index"
# What keeps files small; those that the store's configuration does not know are left out.
_SMALL: Final[dict[str, Any]] = {
    "mapped_file_size_consume_queue": 20 * 48,
    "mapped_file_size_batch_consume_queue": 46 * 40,
    "max_hash_slot_num": 97,
    "max_index_num": 300,
}


def small_config(*, sync_flush: bool, segment_bytes: int = SEGMENT_BYTES, **fields: Any) -> StoreConfig:
    """A configuration with small files."""
    known = StoreConfig.__dataclass_fields__
    values: dict[str, Any] = {name: value for name, value in _SMALL.items() if name in known}
    return StoreConfig(
        store_path_root_dir=STORE_ROOT,
        mapped_file_size_commit_log=segment_bytes,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
        **(values | fields),
    )


class SteppedWorker:
    """A worker that takes a turn when it is told to."""

    def __init__(self, turn: Callable[[], bool]) -> None:
        self._turn = turn
        self._is_running = False

    def start(self) -> None:
        self._is_running = True

    def wake(self) -> None:
        pass

    def pace(self, interval_s: float | None) -> None:
        pass

    def stop(self) -> None:
        self._is_running = False

    def step(self) -> None:
        """One turn, unless it has not begun or has ended."""
        if self._is_running:
            self._is_running = self._turn()


class SimStore:
    """An opened store with its workers and what they handed to the owner."""

    def __init__(self, disk: SimDisk, config: StoreConfig, clock: ManualClock) -> None:
        self.disk = disk
        self.clock = clock
        self.workers: dict[str, SteppedWorker] = {}
        self._notified: list[Callable[[], None]] = []
        self.store = MessageStore(config, clock=clock, notify=self._notified.append, disk=disk, workers=self._worker)

    def _worker(self, name: str, turn: Callable[[], bool], interval_s: float | None = None) -> SteppedWorker:
        return self.workers.setdefault(name, SteppedWorker(turn))

    def open(self) -> MessageStore:
        """Start the store.  Raises as it does; the disk's locks are then free."""
        self.store.start()
        return self.store

    def step(self, name: str) -> None:
        """Let the worker of this name take a turn, then run what it handed to the owner."""
        self.workers[name].step()
        self.run_notified()

    def run_notified(self) -> None:
        while self._notified:
            self._notified.pop(0)()

    def flush(self) -> None:
        """Sync the log, whatever the mode: the time of a thorough flush has come."""
        self.clock.advance(self.store.config.flush_commit_log_thorough_interval / 1000)
        self.step(FLUSH)

    def flush_queues(self) -> None:
        """Sync the queues and write the checkpoint."""
        self.clock.advance(self.store.config.flush_consume_queue_thorough_interval / 1000)
        self.step(FLUSH_QUEUES)
