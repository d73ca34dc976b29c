"""The real disk: files, errors by cause, locks, and segments made ahead."""

import errno
import os
import threading
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from sprocket.common.files.atomic_file import sync_directory
from store.disk import real_file
from store.disk.disk import DiskFile, RealDisk
from store.disk.file_allocator import FileAllocator


def test_a_file_shows_every_write_in_its_view(tmp_path: Path) -> None:
    file = RealDisk().create(tmp_path / "a" / "b" / "file", 8192, preallocate=True)
    view = file.view
    assert (len(view), bytes(view[:4])) == (8192, bytes(4))
    file.write(4000, b"x" * 200)
    assert bytes(view[3999:4201]) == b"\0" + b"x" * 200 + b"\0"
    file.sync()
    file.close()
    assert bytes(view[4199:4201]) == b"x\0"
    again = RealDisk().open(tmp_path / "a" / "b" / "file", preallocate=True)
    assert (again.size_bytes, bytes(again.view[4000:4001])) == (8192, b"x")
    again.close()


def test_only_a_preallocated_file_takes_its_space_at_once(tmp_path: Path) -> None:
    size = 1 << 20
    for preallocate in (False, True):
        path = tmp_path / str(preallocate)
        RealDisk().create(path, size, preallocate=preallocate).close()
        status = path.stat()
        assert status.st_size == size
        assert (status.st_blocks * 512 >= size) == preallocate


def test_no_space_is_disk_full_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFull, match="No space left"):
        RealDisk().create(tmp_path / "file", 4096, preallocate=True)
    assert list(tmp_path.iterdir()) == []


def test_any_error_of_a_sync_is_a_failed_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().create(tmp_path / "file", 4096, preallocate=True)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(DiskFailed, match="sync"):
        file.sync()
    file.close()


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk().create(tmp_path / "file", 4096, preallocate=True)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, content, at: pwrite(fd, memoryview(content)[:7], at))
    file.write(10, bytes(range(100)))
    assert bytes(file.view[10:110]) == bytes(range(100))
    file.close()


def test_a_small_file_that_the_system_takes_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, left = os.pwrite, [7, 7, 0]

    def in_parts(descriptor: int, content: bytes, at: int) -> int:
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, memoryview(content)[: left.pop(0) or None], at)

    monkeypatch.setattr(os, "pwrite", in_parts)
    RealDisk().write_small(tmp_path / "list", b"0123456789" * 3)
    assert (tmp_path / "list").read_bytes() == b"0123456789" * 3
    left[:] = [7]
    with pytest.raises(DiskFull):
        RealDisk().write_small(tmp_path / "list", b"x" * 30)


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    disk = RealDisk()
    lock = disk.lock(tmp_path / "lock")
    with pytest.raises(StoreError, match="in use"):
        disk.lock(tmp_path / "lock")
    lock.release()
    disk.lock(tmp_path / "lock").release()


def test_small_files_and_directories(tmp_path: Path) -> None:
    disk = RealDisk()
    path = tmp_path / "deep" / "small"
    assert (disk.read(path), disk.size(path), disk.names(path.parent)) == (None, None, [])
    disk.write_small(path, b"long content")
    disk.write_small(path, b"short")
    assert (disk.read(path), disk.size(path), disk.names(path.parent)) == (b"short", 5, ["small"])
    disk.remove(path)
    disk.remove(path)
    disk.remove_tree(path.parent)
    disk.remove_tree(path.parent)
    assert disk.names(tmp_path) == []
    assert 0 < disk.used_ratio(tmp_path) < 1


class SlowDisk(RealDisk):
    """Counts what it makes and in which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.made = threading.Event()
        self.fails = False

    def create(self, path: Path, size_bytes: int, *, preallocate: bool) -> DiskFile:  # type: ignore[override]
        self.threads.append(threading.current_thread().name)
        self.made.set()
        if self.fails:
            raise DiskFull("create")
        return super().create(path, size_bytes, preallocate=preallocate)


def test_a_segment_is_made_ahead_once_and_dropped_if_not_taken(tmp_path: Path) -> None:
    disk = SlowDisk()
    allocator = FileAllocator(disk)
    allocator.prepare(tmp_path / "1", 4096)
    allocator.prepare(tmp_path / "1", 4096)
    assert disk.made.wait(60)
    file = allocator.take(tmp_path / "1", 4096)
    assert (file.path.name, disk.threads) == ("1", ["store-allocate"])
    allocator.prepare(tmp_path / "2", 4096)
    allocator.close()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_segment_that_could_not_be_made_ahead_is_tried_again(tmp_path: Path) -> None:
    disk = SlowDisk()
    allocator = FileAllocator(disk)
    disk.fails = True
    allocator.prepare(tmp_path / "1", 4096)
    with pytest.raises(DiskFull):
        allocator.take(tmp_path / "1", 4096)
    disk.fails = False
    assert allocator.take(tmp_path / "1", 4096).path.name == "1"
    allocator.close()


def synced_directories(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every directory that the sync of a file syncs, from now on."""
    synced: list[Path] = []

    def note(directory: Path) -> None:
        synced.append(directory)
        sync_directory(directory)

    monkeypatch.setattr(real_file, "sync_directory", note)
    return synced


def test_a_directory_made_while_another_ones_name_is_synced_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush thread syncs the first topic's directories while the owner makes those of the second."""
    disk = RealDisk()
    first = disk.create(tmp_path / "A" / "0" / "file", 64, preallocate=False)
    made: list[DiskFile] = []

    def make_another(directory: Path) -> None:
        sync_directory(directory)
        if directory == tmp_path and not made:
            made.append(disk.create(tmp_path / "B" / "0" / "file", 64, preallocate=False))

    monkeypatch.setattr(real_file, "sync_directory", make_another)
    first.sync()
    synced = synced_directories(monkeypatch)
    made[0].sync()
    assert {tmp_path, tmp_path / "B", tmp_path / "B" / "0"} <= set(synced)
    # And no more often than needed.
    synced.clear()
    disk.create(tmp_path / "B" / "0" / "next", 64, preallocate=False).sync()
    assert synced == [tmp_path / "B" / "0"]


def test_directories_of_a_failed_file_are_durable_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    mkdir = os.mkdir

    def full(path: Path, mode: int = 0o777) -> None:
        if Path(path).name == "0":
            raise OSError(28, "No space left on device")
        mkdir(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", full)
        with pytest.raises(DiskFull):
            disk.create(tmp_path / "A" / "0" / "file", 64, preallocate=False)
    synced = synced_directories(monkeypatch)
    (tmp_path / "A").mkdir(exist_ok=True)
    disk.create(tmp_path / "A" / "0" / "file", 64, preallocate=False).sync()
    assert {tmp_path, tmp_path / "A", tmp_path / "A" / "0"} <= set(synced)


def test_a_list_of_a_directory_lacks_what_goes_meanwhile_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "loop").symlink_to("loop")
    scandir = os.scandir

    class Racing:
        """Return the entries; one of them is removed before its size is asked for."""

        def __enter__(self) -> list[os.DirEntry[str]]:
            with scandir(tmp_path) as found:
                entries = list(found)
            (tmp_path / "b").unlink()
            return entries

        def __exit__(self, *arguments: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda path: Racing())
    assert RealDisk().entries(tmp_path) == [("a", 5), ("c", 5), ("loop", None)]
