"""The mark that tells readers of the files up to where consumers may see."""

from pathlib import Path

import pytest

from store.config.store_config import FlushDiskType, StoreConfig
from store.disk.store_lock import is_locked
from store.flush.confirm_mark import CONFIRM_MARK, decode_confirm_mark
from store.message_store import MessageStore
from tests.clock import ManualClock
from tests.store.insides import write_confirm_mark
from tests.store.rig import message


def open_store(root: Path, flush: FlushDiskType, clock: ManualClock) -> MessageStore:
    config = StoreConfig(store_path_root_dir=root, mapped_file_size_commit_log=1 << 16, flush_disk_type=flush)
    store = MessageStore(config, clock=clock, notify=lambda run: run())
    store.start()
    return store


def marked(root: Path) -> tuple[int, int] | str | None:
    path = root / CONFIRM_MARK
    return decode_confirm_mark(path.read_bytes()) if path.exists() else None


def test_nothing_is_marked_where_nothing_is_held_back(tmp_path: Path) -> None:
    (tmp_path / CONFIRM_MARK).write_bytes(b"left by a run that was killed")
    store = open_store(tmp_path, FlushDiskType.ASYNC_FLUSH, ManualClock())
    assert marked(tmp_path) is None
    assert is_locked(tmp_path / "lock")
    store.shutdown()
    assert not is_locked(tmp_path / "lock")


def test_what_replicas_hold_back_is_marked_and_a_stop_removes_it(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, FlushDiskType.ASYNC_FLUSH, clock)
    store.append([message()])
    confirmed = store.confirm_offset
    store.confirmation.replicated(confirmed, confirmed, is_enough=True)
    store.append([message()])
    write_confirm_mark(store)
    assert marked(tmp_path) == (confirmed, clock.wall_ms())
    store.confirmation.replicated(store.wrote_offset, store.wrote_offset, is_enough=True)
    write_confirm_mark(store)
    assert marked(tmp_path) == (store.wrote_offset, clock.wall_ms())
    store.shutdown()
    assert marked(tmp_path) is None


def test_with_sync_flush_there_is_a_mark_from_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path, FlushDiskType.SYNC_FLUSH, ManualClock())
    found = marked(tmp_path)
    assert isinstance(found, tuple)
    assert found[0] == 0
    store.shutdown()


@pytest.mark.parametrize("content", [b"", b"x" * 40, bytes(36)])
def test_damage_is_no_mark(content: bytes) -> None:
    assert isinstance(decode_confirm_mark(content), str)
