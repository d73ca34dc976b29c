"""A store on a real disk of 64 MiB, with its own threads: ``unshare -m python -m tests.chaos.disks.disk_cleaning``.

First nothing is cleaned: the disk is filled beyond the warning level by somebody else, appends are refused with the
cause, reads go on, and appends are taken again when the space is back.  Then cleaning is on, and more than the
disk holds is appended: the oldest segments go by themselves, in time for every append.

Prints one line of JSON.  Status 77: this machine does not allow mounts.
"""

import json
import queue
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sprocket.common.clock import SystemClock
from sprocket.common.errors import DiskFull
from store.config.store_config import StoreConfig
from store.message_store import MessageStore, PendingMessage
from tests.chaos.disks.loop_disk import MIB, SKIPPED, CannotMount, mount_tmpfs, unmount_all
from tests.store.reading import bodies

DISK_MIB: Final = 64
APPENDED_MIB: Final = 80
_LIMIT_S: Final = 60.0
BODY_BYTES: Final = 128 * 1024
_BODY: Final = bytes(BODY_BYTES)
_PAUSE_S: Final = 0.003
# Between appends to a disk that fills up: slower than the store looks at it.
_FILL_PAUSE_S: Final = 0.05
_LOOK_MS: Final = 100


class Owner:
    """The owner thread of one store: appends, and between them does what the store's threads hand over."""

    def __init__(self, root: Path, **fields: Any) -> None:
        self._handed: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        config = StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=MIB, **fields)
        self.store = MessageStore(config, clock=SystemClock(), notify=self._handed.put)
        self.store.start()

    def turn(self) -> None:
        while True:
            try:
                self._handed.get_nowait()()
            except queue.Empty:
                return

    def append(self) -> str | None:
        """Append one message; the cause if it is refused."""
        self.turn()
        try:
            self.store.append([PendingMessage("Orders", 0, _BODY, b"", 0, 0, 0, 0, bytes(8))])
        except DiskFull as error:
            return str(error)
        return None

    def until(self, condition: Callable[[], bool], what: str, pause_s: float = _PAUSE_S) -> None:
        """Give the threads time until `condition` holds."""
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            self.turn()
            time.sleep(pause_s)
            assert time.monotonic() < deadline, f"not within {_LIMIT_S:.0f} s: {what}"


def fill_and_free(root: Path) -> dict[str, Any]:
    """Appends are refused while the disk is full, and taken when it is not."""
    owner = Owner(root / "store", clean_file_forcibly_enable=False, clean_resource_interval=_LOOK_MS)
    filler = root / "filler"
    assert owner.append() is None
    filler.write_bytes(bytes(57 * MIB))
    owner.until(lambda: owner.append() is not None, "a refusal", _FILL_PAUSE_S)
    cause = owner.append()
    refused_at = owner.store.wrote_offset
    readable = len(bodies(owner.store))
    filler.unlink()
    owner.until(lambda: owner.append() is None, "an append after the space was freed")
    assert owner.store.wrote_offset > refused_at
    owner.store.shutdown()
    return {"cause": cause, "readable_while_full": readable}


def clean_by_ratio(root: Path) -> dict[str, Any]:
    """More than the disk holds goes through it."""
    owner = Owner(
        root / "store", clean_resource_interval=_LOOK_MS, delete_file_batch_max=1000,
        delete_commit_log_files_interval=1, delete_consume_queue_files_interval=1,
        flush_interval_commit_log=20, disk_space_clean_forcibly_ratio=35,
    )  # fmt: skip
    refused = appended = 0
    started = time.monotonic()
    while appended < APPENDED_MIB * MIB // BODY_BYTES:
        if owner.append() is None:
            appended += 1
        else:
            refused += 1
        time.sleep(_PAUSE_S)
        assert time.monotonic() - started < _LIMIT_S, f"{appended} appended, {refused} refused"
    store = owner.store
    low, high = store.min_offset("Orders", 0), store.max_offset("Orders", 0)
    kept = len(bodies(store))
    assert kept == high - low
    store.shutdown()
    again = Owner(root / "store")
    assert (again.store.min_offset("Orders", 0), again.store.max_offset("Orders", 0)) == (low, high)
    again.store.shutdown()
    return {"appended": appended, "refused_by_ratio": refused, "removed": low, "kept": kept}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="disk-cleaning-") as name:
        disk = Path(name) / "disk"
        try:
            mount_tmpfs(disk, DISK_MIB)
            outcome = fill_and_free(disk) | clean_by_ratio(disk)
        except CannotMount as error:
            print(error)
            sys.exit(SKIPPED)
        finally:
            unmount_all(disk)
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
