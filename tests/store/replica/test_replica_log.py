"""A replica's log: whatever pieces the master's bytes come in, the stores end alike."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.errors import CorruptRecord, DiskFull, StoreError
from store.message_store import MessageStore
from store.replica import replica_log
from store.replica.replica_log import StoreReplicaLog
from tests.store.insides import commit_log_of
from tests.store.log.test_log_scan import fill
from tests.store.reading import read_queue
from tests.store.rig import FaultyDisk, Stores, message, noting
from tests.tiers import seeds

QUEUES = [("Orders", 0), ("Orders", 3), ("Bills", 0)]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    """Three segments of messages of several sizes."""
    stores = Stores(tmp_path / "master")
    store = stores.open()
    choose = random.Random(5)
    for number in range(120):
        topic, queue_id = choose.choice(QUEUES)
        store.append([message(topic, queue_id, body=choose.randbytes(choose.randrange(1, 600)), tag=f"t{number % 3}")])
    yield store
    store.shutdown()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Stores]:
    opened = Stores(tmp_path / "replica")
    yield opened
    opened.close_all()


def replica_of(store: MessageStore) -> StoreReplicaLog:
    return store.replica()


def pieces_of(master: MessageStore, start: int, choose: random.Random, most: int = 900) -> Iterator[memoryview]:
    while (piece := master.master_log().piece_at(start, choose.randrange(1, most))) is not None:
        yield piece
        start += len(piece)


def log_bytes(store: MessageStore) -> bytes:
    log = commit_log_of(store)
    pieces, at = [], log.min_offset
    while (piece := log.piece_at(at, 1 << 30)) is not None:
        pieces.append(bytes(piece))
        at += len(piece)
    return b"".join(pieces)


def contents(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, int, bytes]]]:
    return {
        (topic, queue_id): [
            (one.queue_offset, one.physical_offset, bytes(one.body)) for one in read_queue(store, topic, queue_id)
        ]
        for topic, queue_id in QUEUES
    }


@pytest.mark.parametrize("seed", seeds(8))
def test_pieces_of_any_size_give_the_same_log_and_queues(master: MessageStore, replicas: Stores, seed: int) -> None:
    store, choose = replicas.open(), random.Random(seed)
    replica = replica_of(store)
    arrived: list[tuple[str, int, int, int]] = []
    store.on_arrival.append(noting(arrived))
    for piece in pieces_of(master, 0, choose):
        before = replica.end_offset
        replica.append(replica.received_offset, [piece])
        assert before <= replica.end_offset <= replica.received_offset
    assert replica.end_offset == master.wrote_offset
    assert log_bytes(store) == log_bytes(master)
    assert contents(store) == contents(master)
    for topic, queue_id in QUEUES:
        counted = [(first, end) for name, number, end, first in arrived if (name, number) == (topic, queue_id)]
        assert [first for first, _ in counted] == [0, *(end for _, end in counted[:-1])]
        assert counted[-1][1] == master.max_offset(topic, queue_id)


@pytest.mark.parametrize("seed", seeds(4))
def test_records_in_pieces_and_at_once_give_the_same_queues(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, stores = random.Random(seed), Stores(tmp_path / "master")
    stores.fields["enabled_append_prop_crc"] = seed % 2 == 0
    master = stores.open()
    fill(choose, stores, master, 25)
    at_once = Stores(tmp_path / "at-once").open()
    replica_of(at_once).append(0, [memoryview(log_bytes(master))])
    store = Stores(tmp_path / "replica").open()
    replica = replica_of(store)
    # Pieces of one read: a record may begin in one and end in another.
    monkeypatch.setattr(replica_log, "_JOINED_BYTES", choose.choice((0, 16 * 1024)))
    pieces = list(pieces_of(master, 0, choose, choose.choice((300, 5000, 40_000))))
    while pieces:
        count = choose.randrange(1, 6)
        replica.append(replica.received_offset, pieces[:count])
        del pieces[:count]
    assert log_bytes(store) == log_bytes(master)
    for topic, queue_id in master.queues():
        end = master.max_offset(topic, queue_id)
        assert store.max_offset(topic, queue_id) == at_once.max_offset(topic, queue_id) == end
        entries = store.entries(topic, queue_id, 0, end)
        assert entries.tolist() == at_once.entries(topic, queue_id, 0, end).tolist()
        # The master's tags codes are what the test gave it.
        for column in ("physical_offset", "size"):
            assert (entries[column] == master.entries(topic, queue_id, 0, end)[column]).all()
    for one in (store, at_once, master):
        one.shutdown()


def test_no_flipped_bit_is_taken(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "master")
    stores.fields["enabled_append_prop_crc"] = True
    master = stores.open()
    master.append([message("Orders", 0, body=b"x" * 20, tag="t"), message("Orders", 0, body=b"y" * 20, tag="t")])
    good = log_bytes(master)
    master.shutdown()
    second = int.from_bytes(good[:4], "big")
    store = Stores(tmp_path / "replica").open()
    replica = replica_of(store)
    replica.append(0, [memoryview(good[:second])])
    for bit in range(second * 8, len(good) * 8, 3):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        # A size that is too large says that more is to come; nothing else passes.
        with contextlib.suppress(CorruptRecord):
            replica.append(second, [memoryview(bad)[second:]])
        assert replica.end_offset == second
        replica.restart()
    replica.append(second, [memoryview(good)[second:]])
    assert replica.end_offset == len(good)
    store.shutdown()


def test_several_pieces_are_one_batch(master: MessageStore, replicas: Stores) -> None:
    store = replicas.open()
    arrivals: list[tuple[str, int, int, int]] = []
    store.on_arrival.append(noting(arrivals))
    replica_of(store).append(0, list(pieces_of(master, 0, random.Random(1))))
    assert len(arrivals) == len(QUEUES)
    assert contents(store) == contents(master)


def test_a_replica_may_begin_with_a_later_segment(master: MessageStore, replicas: Stores) -> None:
    store = replicas.open()
    replica = replica_of(store)
    start = 16 * 1024
    replica.append(start, list(pieces_of(master, start, random.Random(1))))
    assert log_bytes(store) == log_bytes(master)[start:]
    for topic, queue_id in QUEUES:
        behind = [one for one in contents(master)[topic, queue_id] if one[1] >= start]
        assert contents(store)[topic, queue_id] == behind
    with pytest.raises(StoreError, match="cannot begin at 5"):
        replica_of(Stores(replicas.root.parent / "other").open()).append(5, [memoryview(b"x")])


def test_a_replica_may_begin_again_after_bytes_that_never_became_a_record(
    master: MessageStore, replicas: Stores
) -> None:
    """The connection ends within the first record; meanwhile the master's last segment is another."""
    store, start = replicas.open(), 16 * 1024
    replica = replica_of(store)
    replica.append(0, [memoryview(log_bytes(master)[:50])])
    assert replica.restart() == 0
    pieces = list(pieces_of(master, start, random.Random(1)))
    replica.append(start, pieces[:1])
    replica.append(start + len(pieces[0]), pieces[1:])
    assert log_bytes(store) == log_bytes(master)[start:]
    replicas.crash(store)
    assert log_bytes(replicas.open()) == log_bytes(master)[start:]


@pytest.mark.parametrize("crash", [False, True])
def test_a_replica_that_has_no_whole_record_yet_begins_where_it_began_however_often_it_starts(
    master: MessageStore, replicas: Stores, crash: bool
) -> None:
    store, start = replicas.open(), 16 * 1024
    replica_of(store).append(start, [memoryview(log_bytes(master)[start : start + 50])])
    for _ in range(3):
        store = replicas.reopen(store, crash=crash)
        assert (store.wrote_offset, replica_of(store).min_offset) == (start, start)
    replica_of(store).append(start, list(pieces_of(master, start, random.Random(1))))
    assert log_bytes(store) == log_bytes(master)[start:]


def test_a_replica_that_found_no_room_for_its_first_segment_is_empty_still(
    master: MessageStore, replicas: Stores
) -> None:
    disk, start = FaultyDisk(), 16 * 1024
    replicas.disk = disk
    store = replicas.open()
    disk.create_fails = True
    with pytest.raises(DiskFull):
        replica_of(store).append(start, list(pieces_of(master, start, random.Random(1))))
    disk.create_fails = False
    store = replicas.reopen(replicas.reopen(store))
    replica_of(store).append(0, list(pieces_of(master, 0, random.Random(1))))
    assert log_bytes(store) == log_bytes(master)


def test_what_a_new_master_refused_of_a_slaves_log_does_not_come_back(replicas: Stores, tmp_path: Path) -> None:
    """Its own first message has the size of the first one that was refused: after it the second would fit."""
    slave = Stores(tmp_path / "slave").open()
    slave.append([message(body=b"%d" % number) for number in range(3)])
    damaged = bytearray(log_bytes(slave))
    damaged[-30] ^= 0x10
    slave.shutdown()
    store = replicas.open()
    replica = replica_of(store)
    replica.recover_tail()
    with pytest.raises(CorruptRecord):
        replica.append(0, [memoryview(bytes(damaged))])
    replica.restart()
    replica.lead()
    store.append([message(body=b"x")])
    end = store.wrote_offset
    store = replicas.reopen(store, crash=True)
    assert store.wrote_offset == end
    assert [bytes(one.body) for one in read_queue(store, "Orders", 0)] == [b"x"]


def test_after_a_crash_or_a_lost_connection_the_master_goes_on_behind_the_last_whole_record(
    master: MessageStore, replicas: Stores
) -> None:
    store, choose = replicas.open(), random.Random(3)
    replica = replica_of(store)
    for turn in range(30):
        for piece in list(pieces_of(master, replica.restart(), choose, 2000))[: choose.randrange(1, 6)]:
            replica.append(replica.received_offset, [piece])
        if turn % 3 == 2:
            replicas.crash(store)
            store = replicas.open()
            replica = replica_of(store)
    replica.restart()
    replica.append(replica.received_offset, list(pieces_of(master, replica.end_offset, choose)))
    assert log_bytes(store) == log_bytes(master)
    assert contents(store) == contents(master)


def test_what_does_not_follow_is_refused(master: MessageStore, replicas: Stores) -> None:
    replica = replica_of(replicas.open())
    replica.append(0, [memoryview(bytes(log_bytes(master)[:500]))])
    with pytest.raises(StoreError, match="expected is 500"):
        replica.append(499, [memoryview(b"x")])


@pytest.mark.parametrize("place", [5, 40, 90])
def test_a_record_that_was_damaged_on_its_way_is_not_taken(master: MessageStore, replicas: Stores, place: int) -> None:
    store = replicas.open()
    replica = replica_of(store)
    good = log_bytes(master)[:9000]
    first = int.from_bytes(good[:4], "big")
    bad = bytearray(good)
    bad[first + place] ^= 0x10
    with pytest.raises(CorruptRecord):
        replica.append(0, [memoryview(bytes(bad))])
    assert (replica.end_offset, replica.received_offset) == (0, 0)
    assert contents(store) == {queue: [] for queue in QUEUES}
    replica.append(0, [memoryview(good)])
    assert replica.end_offset > 8000
    replica.append(9000, [memoryview(log_bytes(master)[9000:])])
    assert contents(store) == contents(master)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_a_full_disk_leaves_the_replica_as_it_was(master: MessageStore, replicas: Stores, part: str) -> None:
    disk = replicas.disk = FaultyDisk()
    store = replicas.open()
    replica = replica_of(store)
    data = log_bytes(master)
    replica.append(0, [memoryview(data[:5000])])
    before, seen = replica.restart(), contents(store)
    disk.write_fault = lambda path: part in str(path)
    with pytest.raises(DiskFull):
        replica.append(before, [memoryview(data[before:12_000])])
    assert (replica.end_offset, contents(store)) == (before, seen)
    disk.write_fault = None
    replica.append(before, [memoryview(data[before:])])
    assert contents(store) == contents(master)
