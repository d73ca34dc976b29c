"""Damage of synced records is refused, even of the newest; damage of unsynced records is cut off."""

import struct

import pytest

from sprocket.common.errors import StoreError
from store.config.store_config import FlushDiskType
from store.disk.disk import RealDisk
from store.disk.sealed_file import seal
from store.recovery.flushed_mark import FLUSHED_MARK_KIND, FlushedMark
from tests.no_descriptors import no_descriptors
from tests.store.insides import flush_log
from tests.store.rig import FaultyDisk, Stores, message


def marked(stores: Stores) -> int:
    """Return the offset in the file."""
    return FlushedMark(stores.disk, stores.root).read()


def flip(stores: Stores, physical_offset: int) -> None:
    """Damage one bit of the log."""
    segment_bytes = stores.fields["mapped_file_size_commit_log"]
    with stores.segments()[physical_offset // segment_bytes].open("r+b") as file:
        file.seek(physical_offset % segment_bytes)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))


def test_the_mark_is_there_before_anybody_is_answered(stores: Stores) -> None:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    store = stores.open()
    ((_, at, size),) = store.append([message()])
    seen: list[int] = []
    store.when_confirmed(at + size, lambda error: seen.append(marked(stores)))
    assert flush_log(store) is None
    assert seen == [at + size]


def test_damage_to_what_was_synced_is_refused_before_any_checkpoint(stores: Stores) -> None:
    store = stores.open()
    places = [store.append([message(body=b"%d" % number)])[0] for number in range(20)]
    flush_log(store)
    assert marked(stores) == store.wrote_offset
    stores.crash(store)
    assert not (stores.root / "queuelist").exists(), "nothing else says how far the log was on the disk"
    damaged = places[7][1]
    flip(stores, damaged + 60)
    before = [path.read_bytes() for path in stores.segments()]
    with pytest.raises(StoreError, match=f"physical offset {damaged}: .* but the log was on the disk up to"):
        stores.open()
    assert [path.read_bytes() for path in stores.segments()] == before


def test_damage_to_what_no_sync_covered_is_cut_off(stores: Stores) -> None:
    store = stores.open()
    store.append([message() for _ in range(10)])
    flush_log(store)
    synced = store.wrote_offset
    places = store.append([message() for _ in range(10)])
    stores.crash(store)
    assert marked(stores) == synced
    flip(stores, places[3][1] + 60)
    store = stores.open()
    assert store.wrote_offset == places[3][1]
    assert marked(stores) == store.wrote_offset


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\0" * 36, b"SPKTFLSH", seal(b"QLST", struct.pack(">q", 1 << 40)), seal(FLUSHED_MARK_KIND, b"short"),
        seal(FLUSHED_MARK_KIND, struct.pack(">q", -1)), seal(FLUSHED_MARK_KIND, struct.pack(">q", 1 << 40))[:-1],
    ],
)  # fmt: skip
def test_a_mark_that_cannot_be_trusted_says_nothing(stores: Stores, content: bytes) -> None:
    store = stores.open()
    store.append([message() for _ in range(10)])
    stores.crash(store)
    (stores.root / "flushed").write_bytes(content)
    store = stores.open()
    assert store.max_offset("Orders", 0) == 10
    assert marked(stores) == store.wrote_offset


def test_a_mark_beyond_the_log_is_refused(stores: Stores) -> None:
    store = stores.open()
    store.append([message() for _ in range(10)])
    end = store.wrote_offset
    stores.crash(store)
    (stores.root / "flushed").write_bytes(seal(FLUSHED_MARK_KIND, struct.pack(">q", end + 1)))
    with pytest.raises(StoreError, match=f"physical offset {end}: zeros; but the log was on the disk up to {end + 1}"):
        stores.open()


def test_a_disk_that_takes_no_mark_takes_messages(stores: Stores) -> None:
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    disk.write_fault = lambda path: path.name == "flushed"
    for _ in range(2):
        store.append([message()])
        assert flush_log(store) is None
    assert store.failure is None
    assert store.flushed_offset == store.wrote_offset
    assert marked(stores) < store.wrote_offset


def test_a_full_disk_without_room_for_a_mark_does_not_stop_a_start(stores: Stores) -> None:
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    store.append([message(body=b"kept")])
    stores.close(store)
    (stores.root / "flushed").unlink()
    disk.create_fails = True
    store = stores.open()
    assert store.max_offset("Orders", 0) == 1
    stores.close(store)
    disk.create_fails = False
    assert stores.open().max_offset("Orders", 0) == 1
    assert (stores.root / "flushed").exists()


def test_a_start_without_a_descriptor_keeps_the_mark_later(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    mark = FlushedMark(RealDisk(), stores.root)
    with no_descriptors():
        mark.open(10)
        mark.note(20)
        mark.note(30)
    assert sum("flushed_mark_disabled" in line for line in caplog.messages) == 1
    mark.note(40)
    assert marked(stores) == 40
    mark.note(50)
    assert marked(stores) == 50
    mark.close()
    mark.note(60)
    assert marked(stores) == 50
