"""The process that packs segments makes what a writer in this process makes, and its end is only an error."""

from collections.abc import Iterator

import pytest

from sprocket.common.errors import StoreError
from store.message_store import MessageStore
from store.tier.segment_process import SegmentProcess
from store.tier.segment_writer import Kept, LogDamaged
from tests.store.rig import Stores
from tests.store.tier.parts import part_at, write
from tests.store.tier.test_archive_writer import FILE_BYTES, filled


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return filled(stores)


@pytest.fixture
def packer(store: MessageStore) -> Iterator[SegmentProcess]:
    packer = SegmentProcess(
        store.config.commit_log_path, store.config.mapped_file_size_commit_log, store.config.message_delay_level
    )
    yield packer
    packer.close()


def test_segments_are_the_same_as_in_this_process(store: MessageStore, packer: SegmentProcess) -> None:
    for start, kept in ((0, Kept()), (FILE_BYTES, Kept(frozenset({"Orders"})))):
        segment = packer.segment(part_at(store, start), kept)
        if start:
            segment.hurry()
        assert (b"".join(segment), segment.written) == write(store, part_at(store, start), kept)


def test_a_process_that_ends_is_an_error_and_the_next_part_starts_another(
    store: MessageStore, packer: SegmentProcess
) -> None:
    pieces = iter(packer.segment(part_at(store, 0), Kept()))
    next(pieces)
    packer.close()
    with pytest.raises(StoreError, match="the process ended"):
        list(pieces)
    assert list(packer.segment(part_at(store, 0), Kept()))


def test_a_part_that_is_left_does_not_disturb_the_next(store: MessageStore, packer: SegmentProcess) -> None:
    left = iter(packer.segment(part_at(store, 0), Kept()))
    next(left)
    del left
    segment = packer.segment(part_at(store, FILE_BYTES), Kept())
    assert b"".join(segment) == write(store, part_at(store, FILE_BYTES))[0]


def test_the_end_of_a_part_that_was_left_does_not_disturb_the_next(store: MessageStore, packer: SegmentProcess) -> None:
    left = packer.segment(part_at(store, 0), Kept())
    pieces = iter(left)
    next(pieces)
    segment = packer.segment(part_at(store, FILE_BYTES), Kept())
    taken = iter(segment)
    first = next(taken)
    with pytest.raises(StoreError, match="the process ended"):
        list(pieces)
    assert first + b"".join(taken) == write(store, part_at(store, FILE_BYTES))[0]


def test_damage_of_the_log_is_said_as_such(store: MessageStore, packer: SegmentProcess) -> None:
    with (store.config.commit_log_path / f"{0:020d}").open("r+b") as file:
        file.seek(150)
        file.write(b"?")
    with pytest.raises(LogDamaged, match="physical offset 0"):
        list(packer.segment(part_at(store, 0), Kept()))
