"""Batch ConsumeQueues through the store: records that hold many messages."""

import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from sprocket.common.errors import DiskFull, StoreError
from sprocket.common.figures import values
from sprocket.remoting.message.record import SysFlag
from store.disk.disk import RealDisk
from store.layout import BATCH_CONSUME_QUEUE_DTYPE
from store.message_store import MessageStore, PendingMessage
from store.queue.batch_consume_queue import BatchConsumeQueue
from store.queue.get_result import Boundary, GetStatus
from store.queue.inner_batch import message_count, placed_at
from store.queue.logic_queue import QueueType
from store.record.record import Record
from tests.store.insides import flush_queues
from tests.store.reading import records_of
from tests.store.retention.cleaning import BODY, HOUR_S, PER_SEGMENT, CleanedStore
from tests.store.rig import FaultyDisk, Stores, message

TOPIC = "Batches"
UNIT = struct.Struct(">qiqqqhii")
FLAGS = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


@pytest.fixture
def batches(stores: Stores) -> Stores:
    """Stores that know `TOPIC` as one of batches, with four units to a file."""
    stores.queue_types[TOPIC] = QueueType.BATCH
    stores.fields["mapped_file_size_batch_consume_queue"] = 4 * UNIT.size
    return stores


def batch(count: int, body: bytes = b"body", queue_id: int = 0, tag: str | None = None) -> PendingMessage:
    """A record of `count` messages; what is in them is the broker's business."""
    return message(TOPIC, queue_id, body, tag, sys_flag=FLAGS, properties=b"INNER_NUM\x01%d\x02" % count)


def read_from(store: MessageStore, offset: int, most: int = 32) -> tuple[list[Record], int]:
    """The records of one read, and where the next begins."""
    result = store.get(TOPIC, 0, offset, most, 1 << 20)
    assert result.status is GetStatus.FOUND, result
    records = records_of(result.slices)
    assert result.message_count == sum(message_count(bytes(record.properties)) for record in records)
    return records, result.next_offset


def all_bodies(store: MessageStore, queue_id: int = 0) -> list[tuple[int, bytes]]:
    """(first queue offset, body) of every record."""
    found, offset = [], store.min_offset(TOPIC, queue_id)
    while (result := store.get(TOPIC, queue_id, offset, 32, 1 << 20)).status is GetStatus.FOUND:
        found += [(record.queue_offset, bytes(record.body)) for record in records_of(result.slices)]
        assert result.next_offset > offset
        offset = result.next_offset
    assert offset == store.max_offset(TOPIC, queue_id)
    return found


def units(root: Path, queue_id: int = 0) -> list[tuple[int, ...]]:
    """Every unit in the files, zeros left out."""
    files = sorted((root / "batchconsumequeue" / TOPIC / str(queue_id)).iterdir())
    content = b"".join(file.read_bytes() for file in files)
    return [unit for unit in UNIT.iter_unpack(content) if unit != (0,) * 8]


def test_the_layout_is_rocketmqs() -> None:
    """Offsets of the fields: `BatchConsumeQueue.MSG_*_INDEX`."""
    places = {name: BATCH_CONSUME_QUEUE_DTYPE.fields[name][1] for name in BATCH_CONSUME_QUEUE_DTYPE.names or ()}
    assert BATCH_CONSUME_QUEUE_DTYPE.itemsize == UNIT.size == 46
    assert places == {
        "physical_offset": 0, "size": 8, "tags_code": 12, "store_timestamp": 20, "base_offset": 28, "batch_size": 36,
        "compacted_offset": 38, "reserved": 42,
    }  # fmt: skip


def test_each_record_is_one_unit_and_takes_as_many_offsets_as_it_has_messages(batches: Stores) -> None:
    store = batches.open()
    first, second, third = store.append([batch(3, tag="a"), message(TOPIC), batch(2)])
    assert [appended[0] for appended in (first, second, third)] == [0, 3, 4]
    assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, 6)
    now = batches.clock.wall_ms()
    assert units(batches.root) == [
        (first[1], first[2], 97, now, 0, 3, -1, 0),
        (second[1], second[2], 0, now, 3, 1, -1, 0),
        (third[1], third[2], 0, now, 4, 2, -1, 0),
    ]
    assert not (batches.root / "consumequeue" / TOPIC).exists()
    assert [path.name for path in sorted((batches.root / "batchconsumequeue" / TOPIC / "0").iterdir())] == ["0" * 20]


def test_a_record_says_how_many_messages_it_holds_and_where_they_begin(batches: Stores) -> None:
    """`CommitLog.setBatchSizeIfNeeded` enters a record into the queue only if it has both properties."""
    store = batches.open()
    store.append([batch(3), message(TOPIC, properties=b"A\x01b"), message(TOPIC, properties=b"INNER_NUM\x0199\x02")])
    properties = [bytes(record.properties) for record in read_from(store, 0)[0]]
    assert [text[: text.index(b"INNER_BASE") + 13] for text in properties] == [
        b"INNER_NUM\x013\x02INNER_BASE\x010\x02",
        b"A\x01b\x02INNER_NUM\x011\x02INNER_BASE\x013\x02",
        b"INNER_NUM\x011\x02INNER_BASE\x014\x02",
    ]


@pytest.mark.parametrize(
    ("properties", "count"),
    [(b"", 1), (b"INNER_NUM\x017\x02", 7), (b"INNER_NUM\x010\x02", 1), (b"INNER_NUM\x01-3\x02", 1),
     (b"INNER_NUM\x01x\x02", 1), (b"INNER_NUM\x0132768\x02", 32767), (b"INNER_NUM\x01999999999999\x02", 1)],
)  # fmt: skip
def test_a_number_that_is_none_counts_as_one(properties: bytes, count: int) -> None:
    assert message_count(properties) == count


def test_a_place_in_a_queue_replaces_one_that_a_message_brought_along() -> None:
    before = b"INNER_BASE\x019\x02K\x01v\x02INNER_NUM\x012\x02"
    assert placed_at(before, 70, 5) == b"K\x01v\x02INNER_NUM\x015\x02INNER_BASE\x0170\x02"


def test_the_figures_count_the_messages_of_a_record(batches: Stores) -> None:
    store = batches.open()
    store.append([batch(5), batch(1), message("Plain")])
    info = values(store.figures())
    assert info["putMessageTimesTotal"] == "7"


def test_a_read_begins_with_the_record_that_holds_the_offset(batches: Stores) -> None:
    store = batches.open()
    sizes = [3, 1, 5, 2, 4, 1, 7]
    bases = np.cumsum([0, *sizes]).tolist()
    store.append([batch(size, b"%d" % number) for number, size in enumerate(sizes)])
    for offset in range(bases[-1]):
        holder = next(number for number, base in enumerate(bases[1:]) if offset < base)
        records, next_offset = read_from(store, offset, 1)
        assert [record.body for record in records] == [b"%d" % holder]
        assert next_offset == bases[holder + 1]
        assert store.entry(TOPIC, 0, offset) == (records[0].physical_offset, records[0].size_bytes, 0)
    assert store.get(TOPIC, 0, bases[-1], 1, 100).status is GetStatus.OFFSET_OVERFLOW_ONE


def test_a_read_takes_whole_records_up_to_its_limits(batches: Stores) -> None:
    """`DefaultMessageStore.isTheBatchFull`: the first is always taken."""
    batches.fields["mapped_file_size_batch_consume_queue"] = 100 * UNIT.size
    store = batches.open()
    store.append([batch(10, b"x" * 100) for _ in range(10)])
    size = store.entry(TOPIC, 0, 0)[1]  # type: ignore[index]  # the message is there
    cases = [(1, 1 << 20, 1), (10, 1 << 20, 1), (25, 1 << 20, 2), (32, 1 << 20, 3), (500, 1 << 20, 4)]
    for most, bytes_, expected in [*cases, (500, 2 * size + 5, 2), (500, 1, 1)]:
        result = store.get(TOPIC, 0, 0, most, bytes_)
        assert (result.message_count, result.next_offset) == (expected * 10, expected * 10), (most, bytes_)


def test_a_filter_goes_by_the_records_tag(batches: Stores) -> None:
    store = batches.open()
    store.append([batch(2, b"0", tag="a"), batch(2, b"1", tag="b"), batch(2, b"2", tag="a"), batch(2, b"3")])
    result = store.get(TOPIC, 0, 1, 32, 1 << 20, lambda codes: codes == 97)
    assert [record.body for record in records_of(result.slices)] == [b"0", b"2"]
    assert result.next_offset == 8
    assert store.get(TOPIC, 0, 3, 32, 1 << 20, lambda codes: codes == 1).status is GetStatus.NO_MATCHED_MESSAGE
    assert store.tags_codes(TOPIC, 0, 3, 5).tolist() == [98, 97]


def test_a_search_by_time_gives_the_first_message_of_a_record(batches: Stores) -> None:
    store = batches.open()
    times = []
    for size in (3, 2, 2, 4):
        batches.clock.advance(10)
        times.append(batches.clock.wall_ms())
        store.append([batch(size), batch(1)])
    for boundary, time, expected in (
        (Boundary.LOWER, times[0] - 1, 0), (Boundary.UPPER, times[0] - 1, 0),
        (Boundary.LOWER, times[1], 4), (Boundary.UPPER, times[1], 6),
        (Boundary.LOWER, times[1] + 1, 7), (Boundary.UPPER, times[1] + 1, 6),
        (Boundary.LOWER, times[3] + 1, 15), (Boundary.UPPER, times[3] + 1, 14),
    ):  # fmt: skip
        assert store.offset_by_time(TOPIC, 0, time, boundary) == expected, (boundary, time)
    assert store.store_time(TOPIC, 0, 5) == times[1]


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_brings_all_back(batches: Stores, crash: bool) -> None:
    store = batches.open()
    for number in range(30):
        store.append([batch(number % 5 + 1, b"%d" % number), message(TOPIC, 1), message("Orders")])
    before, files = all_bodies(store), units(batches.root)
    store = batches.reopen(store, crash=crash)
    assert all_bodies(store) == before
    assert units(batches.root) == files
    assert store.append([batch(2)])[0][0] == sum(number % 5 + 1 for number in range(30))


@pytest.mark.parametrize("damage", ["gone", "last unit", "first unit", "torn", "short file", "beyond the log", "base"])
def test_damaged_files_are_rebuilt_from_the_log(batches: Stores, damage: str) -> None:
    store = batches.open()
    for number in range(30):
        store.append([batch(number % 5 + 1, b"%d" % number), message("Orders")])
    before, wanted = all_bodies(store), units(batches.root)
    batches.crash(store)
    directory = batches.root / "batchconsumequeue" / TOPIC / "0"
    first, *_, last = sorted(directory.iterdir())
    if damage == "gone":
        shutil.rmtree(batches.root / "batchconsumequeue")
    elif damage == "short file":
        last.write_bytes(last.read_bytes()[:100])
    else:
        path, at, content = {
            "last unit": (last, 46, bytes(46)),
            "first unit": (first, 0, bytes(46)),
            "torn": (last, 46 + 20, bytes(26)),
            "beyond the log": (last, 2 * 46, UNIT.pack(1 << 40, 200, 0, 1, 90, 1, -1, 0)),
            "base": (last, 28, struct.pack(">q", 7)),
        }[damage]
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content)
    store = batches.open()
    assert all_bodies(store) == before
    assert units(batches.root) == wanted


def test_the_queue_ends_with_the_log(batches: Stores) -> None:
    store = batches.open()
    for number in range(10):
        store.append([batch(3, b"%d" % number)])
    physical_offset = store.entry(TOPIC, 0, 15)[0]  # type: ignore[index]  # the message is there
    batches.crash(store)
    with min((batches.root / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(physical_offset)
        segment.write(bytes(8))
    store = batches.open()
    assert all_bodies(store) == [(3 * number, b"%d" % number) for number in range(5)]
    assert len(units(batches.root)) == 5
    assert store.append([batch(2)])[0][:2] == (15, physical_offset)


def test_a_failed_append_leaves_no_offset_taken(batches: Stores) -> None:
    disk = FaultyDisk()
    batches.disk = disk
    store = batches.open()
    store.append([batch(3, b"kept")])
    for part in ("batchconsumequeue", "consumequeue/Orders"):
        store.append([message("Orders")])
        disk.write_fault = lambda path, part=part: f"/{part}/" in str(path)  # type: ignore[misc]
        with pytest.raises(DiskFull):
            store.append([batch(5, b"lost"), message("Orders")])
        disk.write_fault = None
    store.append([batch(2, b"next")])
    assert all_bodies(store) == [(0, b"kept"), (3, b"next")]
    store = batches.reopen(store, crash=True)
    assert all_bodies(store) == [(0, b"kept"), (3, b"next")]


def test_a_flush_covers_the_units(batches: Stores) -> None:
    disk = FaultyDisk()
    batches.disk = disk
    store = batches.open()
    for _ in range(9):
        store.append([batch(2)])
    disk.syncs.clear()
    flush_queues(store)
    assert [path.name for path in disk.syncs if "batchconsumequeue" in str(path)] == [
        f"{start:020d}" for start in (0, 4 * 46, 8 * 46)
    ]
    store.append([batch(2)])
    disk.syncs.clear()
    flush_queues(store)
    assert [path.name for path in disk.syncs if "batchconsumequeue" in str(path)] == [f"{8 * 46:020d}"]


def test_a_deleted_topic_is_gone_and_may_be_of_another_type_afterwards(batches: Stores) -> None:
    store = batches.open()
    store.append([batch(3), message(TOPIC, 1)])
    assert store.delete_topic(TOPIC) == 2
    assert not (batches.root / "batchconsumequeue" / TOPIC).exists()
    batches.queue_types[TOPIC] = QueueType.SIMPLE
    assert store.append([message(TOPIC)])[0][0] == 0
    assert (batches.root / "consumequeue" / TOPIC / "0").exists()


@pytest.mark.parametrize(
    ("written_as", "now"), [(QueueType.BATCH, QueueType.SIMPLE), (QueueType.SIMPLE, QueueType.BATCH)]
)
def test_a_topic_of_another_type_than_its_queues_is_refused_by_name(
    batches: Stores, written_as: QueueType, now: QueueType
) -> None:
    """`ConsumeQueueStore.queueTypeShouldBe`."""
    batches.queue_types[TOPIC] = written_as
    store = batches.open()
    store.append([message(TOPIC)])
    batches.close(store)
    batches.queue_types[TOPIC] = now
    with pytest.raises(StoreError, match=f"queue type of topic {TOPIC} should be {written_as}, but is {now}"):
        batches.new().start()


def test_of_a_topic_that_nobody_knows_the_directory_says_the_type(batches: Stores) -> None:
    store = batches.open()
    store.append([batch(3, b"kept")])
    batches.close(store)
    batches.queue_types.clear()
    store = batches.open()
    assert all_bodies(store) == [(0, b"kept")]
    assert store.append([message(TOPIC, 5)])[0][0] == 0
    assert (batches.root / "batchconsumequeue" / TOPIC / "5").exists()


def test_a_queue_follows_the_log_that_loses_its_oldest_segments(tmp_path: Path) -> None:
    """`BatchConsumeQueue.deleteExpiredFile`, `correctMinOffset`."""
    cleaned = CleanedStore(
        tmp_path / "store", {"Orders": QueueType.BATCH}, mapped_file_size_batch_consume_queue=4 * UNIT.size
    )
    # Three records to a segment, of 1, 2, 3, ... messages.
    for count in range(1, 25):
        properties = b"INNER_NUM\x01%d\x02" % count
        cleaned.store.append([message("Orders", body=BODY, sys_flag=FLAGS, properties=properties)])
        cleaned.clock.advance(20 * HOUR_S / PER_SEGMENT)
    cleaned.flush()
    cleaned.configure(delete_when=str(cleaned.hour()))
    cleaned.clean()
    cleaned.clean()
    gone = cleaned.segments()[0] * PER_SEGMENT
    assert gone >= 9
    wanted = (sum(range(1, gone + 1)), sum(range(1, 25)))
    assert cleaned.range("Orders") == wanted
    files = sorted((cleaned.root / "batchconsumequeue" / "Orders" / "0").iterdir())
    assert int(files[0].name) == gone // 4 * 4 * UNIT.size
    first = cleaned.store.get("Orders", 0, wanted[0], 1, 1 << 20)
    assert (first.status, first.next_offset) == (GetStatus.FOUND, wanted[0] + gone + 1)
    assert cleaned.store.get("Orders", 0, wanted[0] - 1, 1, 1 << 20).status is GetStatus.OFFSET_TOO_SMALL
    for crash in (True, False):
        cleaned.reopen(crash=crash)
        assert cleaned.range("Orders") == wanted
    cleaned.close()


def test_offsets_that_no_record_takes_are_stepped_over(tmp_path: Path) -> None:
    """RocketMQ leaves such gaps, because it does not enter messages that were sent alone."""
    queue = BatchConsumeQueue(RealDisk(), tmp_path, TOPIC, 0, 4 * UNIT.size)
    for offset in (10, 13, 5000, 5001):
        queue.put(offset, offset * 100, 100, 0, 1, 3 if offset == 10 else 1)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (10, 5002, 5002)
    assert queue.entries(14, 10)["base_offset"].tolist() == [5000, 5001]
    assert queue.entry(4999) is None
    assert queue.entry(12) == (1000, 100, 0)
    assert queue.visible_units() == (0, 4)
    queue.close()


def test_any_history_of_appends_crashes_and_losses_gives_the_same_queue(batches: Stores) -> None:
    chance = random.Random(20260)
    store = batches.open()
    wanted: dict[int, list[tuple[int, bytes]]] = {0: [], 1: []}
    ends = {0: 0, 1: 0}
    for step in range(60):
        queue_id, count = chance.randrange(2), chance.choice((1, 1, 2, 9, 300))
        is_alone = count == 1 and chance.random() < 0.5
        body = b"%d" % step * chance.randrange(1, 60)
        store.append([message(TOPIC, queue_id, body) if is_alone else batch(count, body, queue_id), message("Orders")])
        wanted[queue_id].append((ends[queue_id], body))
        ends[queue_id] += count
        if chance.random() < 0.15:
            loses = chance.random() < 0.4
            if loses:
                batches.crash(store)
                shutil.rmtree(batches.root / "batchconsumequeue" / TOPIC / str(queue_id), ignore_errors=True)
                store = batches.open()
            else:
                store = batches.reopen(store, crash=chance.random() < 0.5)
            for number, records in wanted.items():
                assert all_bodies(store, number) == records
