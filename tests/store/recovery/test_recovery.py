"""After any crash the store starts with a prefix of the log and queues that agree with it."""

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from sprocket.common.errors import StoreError
from sprocket.remoting.codec.java_hash import java_hash_code
from store.message_store import GetStatus, MessageStore
from store.recovery.queue_check import first_false
from tests.store.insides import flush_log, flush_queues
from tests.store.reading import bodies, read_queue
from tests.store.rig import FaultyDisk, Stores, message

SEGMENT = 16 * 1024


def fill(store: MessageStore, count: int, queues: int = 3, start: int = 0) -> None:
    """Append `count` messages, the k-th with body k, over some queues, in batches of up to 7."""
    pending = [
        message("Orders", k % queues, b"%d" % k + b"." * (k % 40), tag=f"t{k % 5}") for k in range(start, start + count)
    ]
    for at in range(0, count, 7):
        store.append(pending[at : at + 7])


def snapshot(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    return {key: bodies(store, *key) for key in sorted(store.queues())}


def last_record(store: MessageStore) -> tuple[int, int]:
    """Return offset and size of the last record."""
    found = [entry for key in store.queues() if (entry := store.entry(*key, store.max_offset(*key) - 1))]
    physical_offset, size, _ = max(found)
    return physical_offset, size


def overwrite(stores: Stores, physical_offset: int, content: bytes) -> None:
    path = stores.root / "commitlog" / f"{physical_offset - physical_offset % SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(physical_offset % SEGMENT)
        file.write(content)


@pytest.mark.parametrize("crash", [False, True])
def test_reopening_gives_the_same_store(stores: Stores, crash: bool) -> None:
    store = stores.open()
    fill(store, 500)
    before, end = snapshot(store), store.wrote_offset
    for _ in range(2):
        store = stores.reopen(store, crash=crash)
        assert snapshot(store) == before
        assert store.wrote_offset == end == store.confirm_offset
    fill(store, 50, start=500)
    assert sum(map(len, snapshot(store).values())) == 550


def torn_half(record: bytes) -> bytes:
    return record[: len(record) // 2].ljust(len(record), b"\0")


def torn_front(record: bytes) -> bytes:
    return record[len(record) // 2 :].rjust(len(record), b"\0")


def wrong_crc(record: bytes) -> bytes:
    return record[:8] + bytes([record[8] ^ 1]) + record[9:]


def wrong_body(record: bytes) -> bytes:
    at = record.index(b"499")
    return record[:at] + b"X" + record[at + 1 :]


def wrong_magic(record: bytes) -> bytes:
    return record[:4] + b"ABCD" + record[8:]


def wrong_size(size: int) -> Callable[[bytes], bytes]:
    def change(record: bytes) -> bytes:
        return struct.pack(">i", size) + record[4:]

    change.__name__ = f"size_{size}"
    return change


def wrong_place(record: bytes) -> bytes:
    return record[:28] + struct.pack(">q", 12345) + record[36:]


def wrong_lengths(record: bytes) -> bytes:
    return record[:84] + struct.pack(">i", 0x7FFFFFFF) + record[88:]


DAMAGES = [torn_half, torn_front, wrong_crc, wrong_body, wrong_magic, wrong_place, wrong_lengths] + [
    wrong_size(size) for size in (0, -1, 1, 90, 91, 1 << 30, -(1 << 31), (1 << 31) - 1)
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_record_that_was_promised_is_refused_by_name(
    stores: Stores, damage: Callable[[bytes], bytes]
) -> None:
    store = stores.open()
    fill(store, 500)
    before = snapshot(store)
    offset, size = last_record(store)
    record = bytes(store.record_at(offset, size) or b"")
    stores.close(store)
    overwrite(stores, offset, damage(record))
    log = {path: path.read_bytes() for path in stores.segments()}
    for _ in range(2):
        with pytest.raises(StoreError, match=f"physical offset {offset}: .*sprocket store check") as raised:
            stores.open()
        assert str(stores.segments()[-1]) in str(raised.value)
        assert {path: path.read_bytes() for path in stores.segments()} == log
    overwrite(stores, offset, record)
    assert snapshot(stores.open()) == before


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_last_record_is_cut_off_with_zeros_behind(stores: Stores, damage: Callable[[bytes], bytes]) -> None:
    store = stores.open()
    fill(store, 500)
    before = snapshot(store)
    offset, size = last_record(store)
    view = store.record_at(offset, size)
    assert view is not None
    record = bytes(view)
    stores.crash(store)
    overwrite(stores, offset, damage(record))

    store = stores.open()
    assert store.wrote_offset == offset
    assert store.recovery is not None
    assert store.recovery.reason
    before["Orders", 499 % 3].pop()
    assert snapshot(store) == before
    tail = b"".join(path.read_bytes() for path in stores.segments())[offset:]
    assert not any(tail)
    fill(store, 30, start=499)
    assert sum(map(len, snapshot(store).values())) == 499 + 30


def test_every_length_of_a_torn_log_gives_its_longest_prefix(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    ends = [0]
    for k in range(12):
        store.append([message("Orders", k % 2, b"%d" % k * (k + 1), tag="end")])
        ends.append(store.wrote_offset)
    stores.crash(store)
    log = stores.segments()[0].read_bytes()
    shutil.copytree(stores.root, tmp_path / "saved")
    for cut in range(0, ends[-1] + 20, 7):
        shutil.rmtree(stores.root)
        shutil.copytree(tmp_path / "saved", stores.root)
        stores.segments()[0].write_bytes(log[:cut].ljust(len(log), b"\0"))
        store = stores.open()
        whole = sum(1 for end in ends[1:] if end <= cut)
        assert store.wrote_offset == ends[whole]
        assert [store.max_offset("Orders", q) for q in (0, 1)] == [(whole + 1) // 2, whole // 2]
        assert len(read_queue(store)) == (whole + 1) // 2
        stores.crash(store)


@pytest.mark.parametrize("crash", [False, True])
def test_lost_consume_queues_are_rebuilt_from_the_log(stores: Stores, crash: bool) -> None:
    store = stores.open()
    fill(store, 500)
    before = snapshot(store)
    (stores.crash if crash else stores.close)(store)
    shutil.rmtree(stores.root / "consumequeue")
    store = stores.open()
    assert snapshot(store) == before
    assert store.tags_codes("Orders", 0, 0, 2).tolist() == [java_hash_code("t0"), java_hash_code("t3")]


def test_rebuilt_queues_equal_the_lost_ones_byte_for_byte(stores: Stores) -> None:
    store = stores.open()
    fill(store, 500)
    stores.close(store)
    before = {path: path.read_bytes() for path in stores.queue_files()}
    assert len(before) > 3
    shutil.rmtree(stores.root / "consumequeue")
    stores.close(stores.open())
    assert {path: path.read_bytes() for path in stores.queue_files()} == before


def test_one_lost_queue_is_noticed_after_a_crash(stores: Stores) -> None:
    store = stores.open()
    fill(store, 500)
    store = stores.reopen(store)
    fill(store, 10, start=500)
    before = snapshot(store)
    stores.crash(store)
    shutil.rmtree(stores.root / "consumequeue" / "Orders" / "1")
    store = stores.open()
    assert store.recovery is not None
    assert store.recovery.rebuilt
    assert snapshot(store) == before


def test_entries_that_disagree_with_the_log_are_replaced(stores: Stores) -> None:
    store = stores.open()
    fill(store, 500)
    before = snapshot(store)
    stores.crash(store)
    rng = random.Random(7)
    for queue in range(3):
        path = stores.queue_files("Orders", queue)[-1]
        content = bytearray(path.read_bytes())
        # A torn page of the queue: its second part was never written.
        at = rng.randrange(0, len(content) // 2)
        content[at:] = bytes(rng.randrange(256) for _ in range(len(content) - at))
        path.write_bytes(content)
    store = stores.open()
    assert snapshot(store) == before


def test_a_queue_ahead_of_the_log_is_cut_back(stores: Stores) -> None:
    store = stores.open()
    fill(store, 100)
    log = {path: path.read_bytes() for path in stores.segments()}
    before, end = snapshot(store), store.wrote_offset
    fill(store, 100, start=100)
    stores.crash(store)
    # The queues reached the disk, the log did not.
    for path in stores.segments():
        path.write_bytes(log.get(path, bytes(SEGMENT)))
    store = stores.open()
    assert (snapshot(store), store.wrote_offset) == (before, end)
    fill(store, 9, start=100)
    assert bodies(store, "Orders", 1)[-1].startswith(b"106")


def test_a_queue_behind_the_log_catches_up(stores: Stores) -> None:
    store = stores.open()
    fill(store, 60)
    saved = {queue: stores.queue_files("Orders", queue)[0].read_bytes() for queue in range(3)}
    fill(store, 300, start=60)
    before = snapshot(store)
    stores.crash(store)
    for queue, content in saved.items():
        shutil.rmtree(stores.queue_files("Orders", queue)[0].parent)
        path = stores.root / "consumequeue" / "Orders" / str(queue) / f"{0:020d}"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert snapshot(stores.open()) == before


def test_after_a_crash_only_what_follows_the_checkpoint_is_walked(stores: Stores) -> None:
    store = stores.open()
    fill(store, 400)
    store = stores.reopen(store)
    fill(store, 10, start=400)
    store = stores.reopen(store, crash=True)
    assert store.recovery is not None
    assert 10 <= store.recovery.records <= 12
    assert sum(map(len, snapshot(store).values())) == 410


def test_a_store_without_a_checkpoint_is_walked_whole(stores: Stores) -> None:
    store = stores.open()
    fill(store, 400)
    store = stores.reopen(store)
    before = snapshot(store)
    stores.crash(store)
    for content in (None, b"", b"short", b"\xff" * 4096):
        path = stores.root / "checkpoint"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        store = stores.open()
        assert snapshot(store) == before
        stores.crash(store)


def test_an_empty_last_file_is_removed(stores: Stores) -> None:
    store = stores.open()
    fill(store, 300)
    before, end = snapshot(store), store.wrote_offset
    stores.crash(store)
    following = stores.root / "commitlog" / f"{len(stores.segments()) * SEGMENT:020d}"
    for content in (b"", b"\0" * 3, b"\0" * 1000, b"\0" * SEGMENT):
        following.write_bytes(content)
        store = stores.open()
        assert (snapshot(store), store.wrote_offset) == (before, end)
        assert not following.exists()
        stores.crash(store)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda files: os.truncate(files[-1], 5000), "size is 5000 bytes"),
        (lambda files: os.truncate(files[0], SEGMENT + 1), "size is 16385 bytes"),
        (lambda files: files[1].unlink(), "is missing"),
        (lambda files: files[0].rename(files[0].with_name("0" * 17 + "123")), "not a multiple"),
    ],
)
def test_files_that_are_no_log_are_refused_by_name(
    stores: Stores, damage: Callable[[list[Path]], None], words: str
) -> None:
    store = stores.open()
    fill(store, 500)
    stores.close(store)
    damage(stores.segments())
    with pytest.raises(StoreError, match=words) as raised:
        stores.open()
    assert "commitlog" in str(raised.value)
    # The refused start released the lock.
    with pytest.raises(StoreError, match=words):
        stores.open()


def test_queue_files_of_another_size_are_rebuilt(stores: Stores) -> None:
    store = stores.open()
    fill(store, 500)
    before = snapshot(store)
    stores.close(store)
    stores.fields["mapped_file_size_consume_queue"] = 20 * 64
    store = stores.open()
    assert snapshot(store) == before
    assert {path.stat().st_size for path in stores.queue_files()} == {20 * 64}


def test_other_files_in_the_directories_do_no_harm(stores: Stores) -> None:
    store = stores.open()
    fill(store, 50)
    before = snapshot(store)
    stores.close(store)
    (stores.root / "commitlog" / "notes.txt").write_text("mine")
    (stores.root / "consumequeue" / "Orders" / "x").mkdir()
    (stores.root / "consumequeue" / "file").write_text("mine")
    (stores.root / "consumequeue" / "Orders" / "0" / "note").write_text("mine")
    assert snapshot(stores.open()) == before


def test_a_log_whose_head_has_expired_gives_queues_that_begin_later(stores: Stores) -> None:
    store = stores.open()
    fill(store, 900)
    stores.close(store)
    segments = stores.segments()
    assert len(segments) > 4
    for path in segments[:2]:
        path.unlink()
    store = stores.open()
    first = store.min_offset("Orders", 0)
    assert 0 < first < store.max_offset("Orders", 0)
    entry = store.entry("Orders", 0, first)
    assert entry is not None
    assert 2 * SEGMENT <= entry[0] < 2 * SEGMENT + 1000
    before = snapshot(store)
    # Rebuilt from the rest of the log, the queues begin in the middle of a file, as RocketMQ's do.
    stores.close(store)
    shutil.rmtree(stores.root / "consumequeue")
    store = stores.open()
    assert store.min_offset("Orders", 0) == first
    assert snapshot(store) == before
    per_file = 50
    content = stores.queue_files()[0].read_bytes()
    assert stores.queue_files()[0].name == f"{first // per_file * per_file * 20:020d}"
    assert content[: first % per_file * 20] == bytes.fromhex("00000000000000007fffffff0000000000000000") * (
        first % per_file
    )
    store = stores.reopen(store)
    assert store.min_offset("Orders", 0) == first
    assert snapshot(store) == before


def test_without_a_log_the_queues_mean_nothing(stores: Stores) -> None:
    store = stores.open()
    fill(store, 100)
    stores.close(store)
    shutil.rmtree(stores.root / "commitlog")
    with pytest.raises(StoreError, match="physical offset 0: the segment is missing"):
        stores.open()
    for name in ("queuelist", "flushed"):
        (stores.root / name).unlink()
    store = stores.open()
    assert store.wrote_offset == 0
    assert store.max_offset("Orders", 0) == 0
    assert store.append([message()])[0][:2] == (0, 0)


def test_unsynced_records_are_synced_before_the_store_is_open(stores: Stores) -> None:
    store = stores.open()
    fill(store, 300)
    stores.crash(store)
    disk = FaultyDisk()
    stores.disk = disk
    stores.open()
    assert set(disk.syncs) >= set(stores.segments())


def test_first_false_finds_every_place() -> None:
    for start in (0, 5):
        for count in range(20):
            for place in range(count + 1):
                probed: list[int] = []

                def holds(number: int, end: int = start + place, probed: list[int] = probed) -> bool:
                    probed.append(number)
                    return number < end

                assert first_false(start, start + count, holds) == start + place
                assert all(start <= number < start + count for number in probed)


def test_a_queue_begins_at_its_first_message_when_more_expired_than_was_written_down(stores: Stores) -> None:
    store = stores.open()
    fill(store, 30)
    flush_log(store)
    flush_queues(store)
    fill(store, 400)
    stores.crash(store)
    # Retention continued after the last checkpoint, beyond all that the list of queues names.
    for path in stores.segments()[:3]:
        path.unlink()
    store = stores.open()
    first = store.min_offset("Orders", 0)
    entry = store.entry("Orders", 0, first)
    assert entry is not None
    assert entry[0] >= 3 * stores.fields["mapped_file_size_commit_log"]
    assert store.get("Orders", 0, first, 32, 1 << 20).status is GetStatus.FOUND
