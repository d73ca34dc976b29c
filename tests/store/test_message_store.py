"""Append, read and reopen through the public door."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sprocket.common import failpoints
from sprocket.common.errors import ConfigError, DiskFailed, RequestError, StoreError
from sprocket.common.figures import values
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.record import MAGIC_V1, MAGIC_V2, SysFlag
from store.config.store_config import FlushDiskType
from store.disk.disk import RealDisk
from store.log.log_scan import TURN_BYTES
from store.message_store import Boundary, GetStatus
from store.record.checksum import SEAL_BYTES
from tests.store.reading import bodies, read_queue, records_of
from tests.store.rig import HOST, Stores, message, noting


def test_a_message_comes_back_as_it_went_in(stores: Stores) -> None:
    store = stores.open()
    store.store_host = bytes((10, 9, 8, 7)) + (10911).to_bytes(4, "big")
    pending = message(
        "Orders", 3, b"hello", "A", properties=b"KEYS\x01k1\x02", flag=7, sys_flag=1, reconsume_times=2,
        prepared_transaction_offset=99, born_timestamp=123,
    )  # fmt: skip
    ((queue_offset, physical_offset, size),) = store.append([pending])
    assert (queue_offset, physical_offset, size) == (0, 0, store.wrote_offset)

    result = store.get("Orders", 3, 0, 32, 1 << 20)
    (record,) = records_of(result.slices)
    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (GetStatus.FOUND, 1, 0, 1)
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == ("Orders", 3, 0, 0)
    assert (bytes(record.body), record.flag, record.sys_flag) == (b"hello", 7, 1)
    assert bytes(record.properties)[:-SEAL_BYTES] == b"KEYS\x01k1\x02TAGS\x01A\x02"
    assert (record.born_timestamp, record.born_host) == (123, HOST)
    assert (record.store_timestamp, record.store_host) == (stores.clock.wall_ms(), store.store_host)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (2, 99)
    assert store.entry("Orders", 3, 0) == (0, size, java_hash_code("A"))


def test_ipv6_hosts_set_the_flags_of_the_record(stores: Stores) -> None:
    store = stores.open()
    v6 = bytes(range(16)) + (1).to_bytes(4, "big")
    store.append([message(body=b"one", born_host=v6), message(body=b"two")])
    store.store_host = v6
    store.append([message(body=b"three"), message(body=b"four", born_host=v6)])
    one, two, three, four = read_queue(store)
    assert [r.sys_flag for r in (one, two, three, four)] == [
        SysFlag.BORN_HOST_V6, 0, SysFlag.STORE_HOST_V6, SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6,
    ]  # fmt: skip
    assert (one.born_host, two.born_host, three.born_host, four.store_host) == (v6, HOST, HOST, v6)


def test_a_long_topic_is_written_as_version_two(stores: Stores) -> None:
    store = stores.open()
    store.append([message("t" * 127, body=b"1"), message("t" * 128, body=b"2")])
    first, second = read_queue(store, "t" * 127), read_queue(store, "t" * 128)
    assert [bytes(r.body) for r in first + second] == [b"1", b"2"]
    for record, magic in zip(first + second, (MAGIC_V1, MAGIC_V2), strict=True):
        view = store.record_at(record.physical_offset)
        assert view is not None
        assert int.from_bytes(view[4:8], "big", signed=True) == magic


def test_queues_count_for_themselves_over_batches_and_files(stores: Stores) -> None:
    store = stores.open()
    expected: dict[tuple[str, int], list[bytes]] = {}
    appended = []
    for number in range(40):
        batch = []
        for k in range(17):
            key = (f"T{k % 2}", k % 3)
            body = b"%d-%d" % (number, k)
            expected.setdefault(key, []).append(body)
            batch.append(message(*key, body))
        appended += store.append(batch)
    assert len(stores.segments()) > 3
    for key, wanted in expected.items():
        assert bodies(store, *key) == wanted
        assert store.max_offset(*key) == len(wanted)
    ends = [physical + size for _, physical, size in appended]
    assert all(start >= end for (_, start, _), end in zip(appended[1:], ends, strict=False))
    assert sorted(store.queues()) == sorted(expected)

    again = stores.reopen(store)
    for key, wanted in expected.items():
        assert bodies(again, *key) == wanted
    assert again.append([message("T0", 0)])[0][0] == len(expected["T0", 0])


def test_a_record_never_crosses_a_segment_and_leaves_room_for_the_blank(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 4096
    store = stores.open()
    empty = store.append([message(body=b"")])[0][2]
    # Fills the segment to the last byte that is allowed: eight stay for the blank.
    store.append([message(body=b"x" * (4096 - 8 - 2 * empty))])
    assert store.wrote_offset == 4088
    _, physical, size = store.append([message(body=b"next")])[0]
    assert physical == 4096
    assert (stores.root / "commitlog" / "00000000000000000000").read_bytes()[4088:] == bytes.fromhex("00000008cbd43194")
    # One byte more than fits goes to the next segment whole.
    _, physical, _ = store.append([message(body=b"y" * (4096 - 8 - size - empty + 1))])[0]
    assert physical == 8192
    assert len(read_queue(store)) == 4


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ({"body": b"x" * 1001}, {"max_message_size": 1000}),
        ({"properties": b"p" * 32768}, {"mapped_file_size_commit_log": 1 << 20}),
        ({"body": b"x" * 4096}, {"mapped_file_size_commit_log": 4096}),
        ({"born_host": b"123"}, {}),
        ({"topic": "../../etc"}, {}),
        ({"topic": ".."}, {}),
        ({"topic": ""}, {}),
        ({"queue_id": -1}, {}),
    ],
)
def test_a_message_over_a_limit_takes_its_batch_with_it(
    stores: Stores, fields: dict[str, object], limits: dict[str, int]
) -> None:
    stores.fields |= limits
    store = stores.open()
    store.append([message(body=b"before")])
    end = store.wrote_offset
    with pytest.raises(RequestError, match="illegal") as raised:
        store.append([message(body=b"good"), message(**fields)])  # type: ignore[arg-type]
    assert raised.value.code == 13
    assert store.wrote_offset == end
    assert store.append([message(body=b"after")])[0][0] == 1
    assert bodies(store) == [b"before", b"after"]


def test_prepared_messages_are_in_the_log_and_in_no_queue(stores: Stores) -> None:
    store = stores.open()
    prepared, rollback, commit = (
        SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK, SysFlag.TRANSACTION_COMMIT,
    )  # fmt: skip
    flags = [0, prepared, rollback, commit, 0]
    appended = store.append([message(body=b"%d" % k, sys_flag=int(flag)) for k, flag in enumerate(flags)])
    assert [queue_offset for queue_offset, _, _ in appended] == [0, 0, 0, 1, 2]
    assert bodies(store) == [b"0", b"3", b"4"]
    assert store.record_at(appended[1][1]) is not None
    assert bodies(stores.reopen(store, crash=True)) == [b"0", b"3", b"4"]


def test_scheduled_messages_carry_their_time_of_delivery(stores: Stores) -> None:
    store = stores.open()
    now = stores.clock.wall_ms()
    schedule = "SCHEDULE_TOPIC_XXXX"
    properties = [b"DELAY\x013\x02TAGS\x01a\x02", b"X\x01y\x02DELAY\x0199", b"DELAY\x010\x02", b""]
    store.append([message(schedule, 2, tag=None, properties=p) for p in properties])
    expected = [now + 10_000, now + 7_200_000, 0, 0]
    assert store.tags_codes(schedule, 2, 0, 4).tolist() == expected
    # A rebuilt queue says the same, but for the one that has a tag and no level of its own.
    stores.crash(store)
    for path in stores.queue_files(schedule, 2):
        path.unlink()
    assert stores.open().tags_codes(schedule, 2, 0, 4).tolist() == expected


def test_a_topic_is_deleted_and_begins_again_at_zero(stores: Stores) -> None:
    store = stores.open()
    store.append([message("Gone", k % 2, b"%d" % k) for k in range(120)] + [message("Stays")])
    assert store.delete_topic("Gone") == 2
    assert store.queues() == [("Stays", 0)]
    assert store.get("Gone", 0, 0, 32, 1 << 20).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert not (stores.root / "consumequeue" / "Gone").exists()
    assert store.append([message("Gone", 0, b"new")])[0][0] == 0
    assert bodies(store, "Gone") == [b"new"]
    again = stores.reopen(store, crash=True)
    assert bodies(again, "Gone") == [b"new"]
    assert bodies(again, "Stays") == [b"body"]


def test_a_message_that_arrives_while_its_topics_deletion_is_noted_is_deleted_too(stores: Stores) -> None:
    store = stores.open()
    store.append([message("Gone"), message("Stays")])
    removal, notes = store.topic_removal("Gone"), 0
    while removal.must_note():
        if not notes:
            store.append([message("Gone", 1)])
        removal.note()
        notes += 1
    assert (notes, removal.finish(), store.queues()) == (2, 2, [("Stays", 0)])
    stores.crash(store)
    for path in stores.queue_files("Stays", 0):
        path.unlink()  # so that queues are rebuilt from the log
    assert stores.open().queues() == [("Stays", 0)]


def test_nothing_is_written_for_a_topic_without_queues(stores: Stores) -> None:
    store = stores.open()
    assert store.delete_topic("Unknown") == 0
    assert not (stores.root / "deletedtopics").exists()


def test_times_of_messages(stores: Stores) -> None:
    store = stores.open()
    assert store.earliest_store_time("Orders", 0) == -1
    start = stores.clock.wall_ms()
    for _ in range(5):
        store.append([message()])
        stores.clock.advance(1)
    assert store.earliest_store_time("Orders", 0) == start
    assert [store.store_time("Orders", 0, k) for k in (-1, 0, 4, 5)] == [-1, start, start + 4000, -1]
    assert store.offset_by_time("Nobody", 0, 5) == 0
    assert store.offset_by_time("Orders", 0, start + 2500, Boundary.LOWER) == 3
    assert values(store.figures())["earliestMessageTimeStamp"] == str(start)


def test_record_at_reads_only_what_is_there(stores: Stores) -> None:
    store = stores.open()
    ((_, _, size),) = store.append([message(body=b"abc")])
    assert store.record_at(0) is not None
    assert store.record_at(0, size) == store.record_at(0)
    for offset, given in [(size, None), (0, size + 1), (-1, 91), (1 << 50, None), (1, None), (0, 0), (0, -5)]:
        assert store.record_at(offset, given) is None


def test_arrivals_name_the_new_offsets_once_per_queue(stores: Stores) -> None:
    store = stores.open()
    seen: list[tuple[str, int, int, int]] = []

    def broken(*arguments: object) -> None:
        raise RuntimeError("listener")

    store.on_arrival += [broken, noting(seen)]
    store.append([message("A", 0), message("B", 1), message("A", 0)])
    store.append([message("A", 0)])
    assert seen == [("A", 0, 2, 0), ("B", 1, 1, 0), ("A", 0, 3, 2)]


def test_a_listener_to_one_topic_hears_of_that_topic_alone(stores: Stores) -> None:
    store = stores.open()
    seen: list[tuple[str, int, int, int]] = []

    def broken(*arguments: object) -> None:
        raise RuntimeError("listener")

    store.on_arrival_of["B"] = [broken, noting(seen)]
    store.append([message("A", 0), message("B", 1), message("B", 0), message("B", 1)])
    store.append([message("A", 0)])
    assert seen == [("B", 1, 2, 0), ("B", 0, 1, 0)]
    store.leave(StoreError("the role changes"))
    store.append([message("B", 1)])
    assert len(seen) == 2


def test_only_one_store_uses_a_directory(stores: Stores) -> None:
    store = stores.open()
    with pytest.raises(StoreError, match="in use"):
        stores.open()
    stores.close(store)
    stores.open()


def test_a_bad_configuration_stops_the_start_and_names_the_key(stores: Stores) -> None:
    for fields, key in [
        ({"mapped_file_size_commit_log": 10}, "mappedFileSizeCommitLog"),
        ({"flush_disk_type": "NEVER"}, "flushDiskType"),
        ({"message_delay_level": "1s 5x"}, "messageDelayLevel"),
        ({"access_message_in_memory_max_ratio": 101}, "accessMessageInMemoryMaxRatio"),
    ]:
        saved = dict(stores.fields)
        stores.fields |= fields
        with pytest.raises(ConfigError, match=key):
            stores.open()
        stores.fields = saved


def test_abort_tells_a_clean_stop_from_a_crash(stores: Stores) -> None:
    store = stores.open()
    abort = stores.root / "abort"
    assert abort.exists()
    store.append([message()])
    stores.close(store)
    assert not abort.exists()
    store = stores.open()
    stores.crash(store)
    assert abort.exists()


def test_runtime_figures_count(stores: Stores) -> None:
    store = stores.open()
    store.append([message() for _ in range(10)])
    store.get("Orders", 0, 0, 4, 1 << 20)
    store.get("Orders", 0, 10, 4, 1 << 20)
    stores.clock.advance(10)
    store.statistics.sample()
    info = values(store.figures())
    assert info["commitLogMinOffset"] == "0"
    assert info["commitLogMaxOffset"] == str(store.wrote_offset) == info["putMessageSizeTotal"]
    assert info["putTps"].split() == ["1.0"] * 3
    assert info["getTransferredTps"].split()[0] == "0.4"
    assert info["getTotalTps"].split()[0] == "0.2"
    assert info["putMessageTimesTotal"] == "10"
    assert 0 < float(info["commitLogDiskRatio"]) <= 1


def test_shutdown_makes_everything_durable_and_the_next_start_walks_nothing_twice(stores: Stores) -> None:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    store = stores.open()
    store.append([message(body=b"%d" % k) for k in range(100)])
    # Nothing was confirmed yet; a clean stop confirms it.
    assert store.max_offset("Orders", 0) <= 100
    store = stores.reopen(store)
    assert store.max_offset("Orders", 0) == 100
    assert store.recovery is not None
    assert (store.recovery.records, store.recovery.reason) == (0, "zeros")
    assert store.flushed_offset == store.wrote_offset == store.confirm_offset


# Failures of the disk outside of appends


@pytest.fixture
def broken_books() -> Iterator[Callable[[], None]]:
    """Called: from now on no small file can be written."""
    yield lambda: failpoints.arm("disk.write_small=error:EIO")
    failpoints.arm(None)


def test_a_stop_that_meets_an_error_of_the_disk_ends_all_the_same(
    stores: Stores, broken_books: Callable[[], None]
) -> None:
    store = stores.open()
    store.append([message(body=b"kept")])
    broken_books()
    stores.close(store)
    assert isinstance(store.failure, DiskFailed)
    assert (stores.root / "abort").exists()
    failpoints.arm(None)
    # The lock is free.
    assert bodies(stores.open()) == [b"kept"]


def test_a_stop_on_a_disk_that_takes_nothing_any_more_frees_the_lock(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    for _ in range(3):
        store.append([message(body=b"x" * 4000)])
    store.confirmation.fail(DiskFailed("read-only file system"))

    def refuse(self: RealDisk, path: Path) -> None:
        raise DiskFailed(f"remove {path}: Read-only file system")

    monkeypatch.setattr(RealDisk, "remove", refuse)
    stores.close(store)
    monkeypatch.undo()
    assert len(bodies(stores.open())) == 3


def test_an_error_of_the_disk_when_a_topic_goes_is_latched(stores: Stores, broken_books: Callable[[], None]) -> None:
    store = stores.open()
    store.append([message(body=b"kept")])
    failures: list[DiskFailed] = []
    store.on_failure.append(failures.append)
    broken_books()
    with pytest.raises(DiskFailed):
        store.delete_topic("Orders")
    assert len(failures) == 1
    with pytest.raises(DiskFailed):
        store.append([message()])
    assert bodies(store) == [b"kept"]


@pytest.mark.parametrize("body_bytes", [100, 250_000])
def test_records_are_read_in_turns_whatever_their_size(stores: Stores, body_bytes: int) -> None:
    stores.fields["mapped_file_size_commit_log"] = 2 << 20
    store = stores.open()
    appended = []
    while store.wrote_offset < 5 << 20:
        appended += store.append([message(body=bytes(body_bytes)) for _ in range(3)])
    most = TURN_BYTES + max(size for _, _, size in appended)
    offset, seen = 0, []
    while offset < store.wrote_offset:
        batch, offset = store.records_from(offset)
        assert batch is not None
        assert batch.end_offset - batch.begin_offset <= most
        seen += (batch.positions + batch.base).tolist()
    assert seen == [physical_offset for _, physical_offset, _ in appended]
