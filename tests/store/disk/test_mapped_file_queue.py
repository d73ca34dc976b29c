"""Files of equal size that another thread may look through while the oldest go."""

import threading
from pathlib import Path

import pytest

from store.disk.disk import RealDisk
from store.disk.mapped_file_queue import MappedFileQueue

FILE_BYTES = 64


@pytest.fixture
def files(tmp_path: Path) -> MappedFileQueue:
    queue = MappedFileQueue(RealDisk(), tmp_path / "log", FILE_BYTES, preallocate=False)
    for _ in range(6):
        queue.create_next()
    return queue


def test_the_only_file_is_opened_without_a_look_at_its_directory(files: MappedFileQueue) -> None:
    again = MappedFileQueue(RealDisk(), files.directory, FILE_BYTES, preallocate=False)
    files.write(64 + 10, b"content")
    assert again.load_only(64, 8, 4) == b"\0\0co"
    assert (again.first_offset, again.end_offset, numbers(again, 0, 1000)) == (64, 128, [1])


def test_a_directory_in_the_place_of_the_only_file_is_not_opened(tmp_path: Path) -> None:
    queue = MappedFileQueue(RealDisk(), tmp_path, FILE_BYTES, preallocate=False)
    queue.path_at(0).mkdir()
    assert queue.load_only(0, 0, 8) is None


@pytest.mark.parametrize("size", [None, 0, FILE_BYTES - 1, FILE_BYTES + 1])
def test_an_only_file_of_another_size_is_not_opened(tmp_path: Path, size: int | None) -> None:
    queue = MappedFileQueue(RealDisk(), tmp_path, FILE_BYTES, preallocate=False)
    if size is not None:
        queue.path_at(0).write_bytes(bytes(size))
    assert queue.load_only(0, 0, 8) is None
    assert queue.files == []


def numbers(queue: MappedFileQueue, start: int, end: int) -> list[int]:
    return [int(file.path.name) // FILE_BYTES for file in queue.between(start, end)]


def test_the_files_between_two_offsets(files: MappedFileQueue) -> None:
    assert numbers(files, 0, 1) == [0]
    assert numbers(files, 63, 65) == [0, 1]
    assert numbers(files, 64, 128) == [1]
    assert numbers(files, 70, 70) == []
    assert numbers(files, 320, 1000) == [5]
    assert numbers(files, 2000, 3000) == []


def test_dropping_the_oldest(files: MappedFileQueue) -> None:
    assert [int(file.path.name) for file in files.drop_oldest(2)] == [0, 64]
    assert (files.first_offset, files.end_offset, len(files.files)) == (128, 384, 4)
    assert files.locate(127) is None
    assert numbers(files, 0, 384) == [2, 3, 4, 5]
    assert numbers(files, 0, 100) == []
    assert files.drop_oldest(0) == []
    assert files.create_next().path.name == f"{384:020}"


@pytest.mark.parametrize("files_first", [True, False])
def test_a_drop_seen_half_way_is_waited_for(files: MappedFileQueue, files_first: bool) -> None:
    whole, first_offset = files.files[2:], 128
    if files_first:
        files.files = whole
    else:
        files.first_offset = first_offset
    found: list[list[int]] = []
    reader = threading.Thread(target=lambda: found.append(numbers(files, 192, 320)))
    reader.start()
    reader.join(0.05)
    assert reader.is_alive()
    files.files, files.first_offset = whole, first_offset
    reader.join()
    assert found == [[3, 4]]
