"""What may be read of each queue, and reading it, against what was written."""

import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.decode.columns import DEFAULT_COLUMNS
from spark.decode.decoder import DecodeOptions
from spark.files.store_directory import StoreDirectory
from spark.queues.data_loss import MessagesLost
from spark.queues.positions import QueueId
from spark.queues.ranges import QueueRange, QueueSelection, StoreQueues
from spark.queues.source import DirectoryQueues, packed, read_task
from spark.rows.filters import RowFilter
from sprocket.common.errors import CorruptRecord
from tests.spark.naive_reader import default_columns
from tests.spark.read.test_log_reader import mixed_rows
from tests.spark.store_builder import Row, StoreBuilder

EVERY = QueueSelection()


def read(root: Path, *ranges: QueueRange, fail: bool = True, drop: bool = False) -> list[dict[str, Any]]:
    (task,) = DirectoryQueues([f"b={root}"], EVERY).tasks([ranges])
    decode = DecodeOptions(drop_malformed=drop)
    found: list[dict[str, Any]] = []
    for arrays, count in read_task(task, DEFAULT_COLUMNS, RowFilter(), decode, fail):
        batch = pa.RecordBatch.from_arrays(arrays, names=list(DEFAULT_COLUMNS))
        assert batch.num_rows == count
        found += batch.to_pylist()
    return found


def ranges_of(root: Path, selection: QueueSelection = EVERY) -> dict[tuple[str, int], tuple[int, int]]:
    found = StoreQueues(StoreDirectory(root, "b"), selection).ranges()
    return {(queue.topic, queue.queue_id): bounds for queue, bounds in found.items()}


def written(builder: StoreBuilder) -> dict[tuple[str, int], list[Row]]:
    queues: dict[tuple[str, int], list[Row]] = {}
    for row in builder.rows:
        queues.setdefault((row.topic, row.queue_id), []).append(row)
    return queues


def test_any_range_of_any_queue(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(mixed_rows(1500))
    builder.write()
    queues = written(builder)
    assert ranges_of(tmp_path) == {key: (0, len(rows)) for key, rows in queues.items()}
    rnd = random.Random(5)
    for (topic, number), rows in queues.items():
        begin = rnd.randrange(len(rows))
        end = rnd.randint(begin, len(rows))
        expected = [default_columns(row) for row in rows[begin:end]]
        assert read(tmp_path, QueueRange(QueueId("b", topic, number), begin, end)) == expected
    every = [QueueRange(QueueId("b", *key), 0, len(rows)) for key, rows in queues.items()]
    assert read(tmp_path, *every) == [default_columns(row) for row in builder.rows]


def test_offsets_come_from_the_names_of_files(tmp_path: Path) -> None:
    """Files of the ConsumeQueue have expired, and the first that is left begins with filling."""
    builder = StoreBuilder(tmp_path)
    builder.start_queue_at("T", 0, 1_234_567)
    builder.extend(Row(body=bytes([index % 256])) for index in range(220))
    builder.write()
    first, *others = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())
    assert ranges_of(tmp_path) == {("T", 0): (1_234_567, 1_234_787)}
    first.unlink()
    begin = int(others[0].name) // 20
    assert ranges_of(tmp_path) == {("T", 0): (begin, 1_234_787)}
    rows = read(tmp_path, QueueRange(QueueId("b", "T", 0), begin + 3, begin + 60))
    assert [row["queueOffset"] for row in rows] == list(range(begin + 3, begin + 60))


def test_a_queue_begins_where_its_records_still_stand(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(mixed_rows(1500))
    builder.write()
    oldest = sorted((tmp_path / "commitlog").iterdir())
    for path in oldest[:2]:
        path.unlink()
    left = int(oldest[2].name)
    for key, rows in written(builder).items():
        standing = [row.queue_offset for row in rows if row.physical_offset >= left]
        assert ranges_of(tmp_path)[key] == (standing[0], len(rows))
    every = [QueueRange(QueueId("b", *key), *bounds) for key, bounds in ranges_of(tmp_path).items()]
    assert read(tmp_path, *every) == [default_columns(row) for row in builder.rows if row.physical_offset >= left]


def test_a_queue_of_which_nothing_is_left(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append(Row(topic="Old"))
    builder.extend(Row(topic="New", body=b"x" * 900) for _ in range(200))
    builder.write()
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    assert ranges_of(tmp_path)["Old", 0] == (1, 1)


@pytest.mark.parametrize("content", [b"", bytes(1000)])
def test_an_empty_queue(tmp_path: Path, content: bytes) -> None:
    builder = StoreBuilder(tmp_path)
    builder.append(Row())
    builder.write()
    for topic, first in [("Empty", 0), ("Late", 40_000)]:
        directory = tmp_path / "consumequeue" / topic / "3"
        directory.mkdir(parents=True)
        (directory / f"{first * 20:020d}").write_bytes(content)
    (tmp_path / "consumequeue" / "NoFile" / "0").mkdir(parents=True)
    found = ranges_of(tmp_path)
    assert (found["Empty", 3], found["Late", 3]) == ((0, 0), (40_000, 40_000))
    assert found["NoFile", 0] == (0, 0)


def test_a_queue_ahead_of_its_log_ends_with_the_last_whole_record(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(mixed_rows(300))
    cut = builder.rows[-40].physical_offset
    for row in builder.rows[-40:]:
        builder.patch(row.physical_offset, bytes(88))
    builder.write()
    for key, rows in written(builder).items():
        assert ranges_of(tmp_path)[key] == (0, sum(row.physical_offset < cut for row in rows))


def test_the_record_being_written_is_not_in_the_range(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(Row(body=b"b" * 50, properties={"KEYS": "k"}) for _ in range(9))
    builder.patch(builder.rows[-1].physical_offset + 100, bytes(10))
    builder.write()
    assert ranges_of(tmp_path) == {("T", 0): (0, 8)}


def test_a_growing_queue_is_looked_at_again(tmp_path: Path) -> None:
    """What is remembered of the last look never makes the next one wrong."""
    queues = StoreQueues(StoreDirectory(tmp_path, "b"), EVERY)
    builder = StoreBuilder(tmp_path)
    rnd = random.Random(2)
    for _ in range(12):
        builder.extend(Row(queue_id=rnd.randrange(3)) for _ in range(rnd.choice([1, 30, 120])))
        builder.write()
        expected = {QueueId("b", *key): (0, len(rows)) for key, rows in written(builder).items()}
        assert queues.ranges() == expected
    shutil.rmtree(tmp_path)
    again = StoreBuilder(tmp_path)
    again.extend(Row() for _ in range(7))
    again.write()
    assert queues.ranges() == {QueueId("b", "T", 0): (0, 7)}


def test_selections(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    for topic in ("A", "AB", "B"):
        builder.extend(Row(topic=topic, queue_id=number) for number in range(3))
    builder.write()

    def chosen(**selection: Any) -> list[tuple[str, int]]:
        return sorted(ranges_of(tmp_path, QueueSelection(**selection)))

    assert len(chosen()) == 9
    assert {topic for topic, _ in chosen(topics=frozenset({"A", "None"}))} == {"A"}
    assert {topic for topic, _ in chosen(topic_pattern="A.*")} == {"A", "AB"}
    assert chosen(assigned={"B": frozenset({0, 2}), "A": frozenset({9})}) == [("B", 0), ("B", 2)]
    held = [QueueId("b", "A", 0), QueueId("b", "B", 0)]
    assert QueueSelection(assigned={"B": frozenset({0, 2}), "C": frozenset({1})}).absent(held) == ["B/2", "C"]
    assert QueueSelection(topics=frozenset({"A", "None"})).absent(held) == ["None"]
    assert QueueSelection(topic_pattern="X.*").absent(held) == QueueSelection().absent([]) == []


def test_time_search_with_a_clock_that_steps_back(tmp_path: Path) -> None:
    rnd = random.Random(3)
    stamps = [1_000_000 + index * 1000 - rnd.choice([0, 0, 50_000]) for index in range(800)]
    builder = StoreBuilder(tmp_path)
    builder.extend(Row(store_timestamp=stamp, born_host=rnd.choice([bytes(4), bytes(16)])) for stamp in stamps)
    builder.write()
    queues = StoreQueues(StoreDirectory(tmp_path, "b"), EVERY)
    for wanted in [0, *rnd.sample(stamps, 30), 5_000_000]:
        expected = next((index for index, stamp in enumerate(stamps) if stamp >= wanted), len(stamps))
        assert queues.at_time(QueueId("b", "T", 0), wanted, 50_000) == expected


def test_what_has_gone_since_the_plan_is_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(Row(topic=topic, body=b"x" * 400) for _ in range(150) for topic in ("T", "U"))
    builder.write()
    planned = [QueueRange(QueueId("b", topic, 0), 0, 150) for topic in ("T", "U")]
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    left = [row for row in builder.rows if row.physical_offset >= 1 << 16]
    lost = {topic: min(row.queue_offset for row in left if row.topic == topic) for topic in ("T", "U")}
    with pytest.raises(MessagesLost) as caught:
        read(tmp_path, *planned)
    assert {(each.queue.topic, each.begin, each.end) for each in caught.value.lost} == {
        ("T", 0, lost["T"]), ("U", 0, lost["U"])
    }  # fmt: skip
    assert f"b/T/0 [0, {lost['T']}) expired" in str(caught.value)
    assert read(tmp_path, *planned, fail=False) == [default_columns(row) for row in left]
    shutil.rmtree(tmp_path / "consumequeue" / "U")
    with pytest.raises(MessagesLost, match=r"b/U/0 \[0, 150\) deleted"):
        read(tmp_path, planned[1])


def test_entries_that_have_gone_since_the_plan_are_named(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(Row() for _ in range(120))
    builder.write()
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    planned = QueueRange(QueueId("b", "T", 0), 10, 130)
    with pytest.raises(MessagesLost, match=r"\[10, 50\) expired; b/T/0 \[120, 130\) deleted"):
        read(tmp_path, planned)
    assert [row["queueOffset"] for row in read(tmp_path, planned, fail=False)] == list(range(50, 120))


def test_an_entry_that_points_at_another_record_is_damage(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(Row(body=b"x" * (index % 7)) for index in range(30))
    builder.write()
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    struct.pack_into(">q", content, 20 * 5, builder.rows[6].physical_offset)
    file.write_bytes(content)
    planned = QueueRange(QueueId("b", "T", 0), 0, 30)
    with pytest.raises(CorruptRecord, match="b/T/0 at 5 points here, but no record of its size"):
        read(tmp_path, planned)
    assert [row["queueOffset"] for row in read(tmp_path, planned, drop=True)] == [*range(5), *range(6, 30)]


@pytest.mark.parametrize("left", [0, 10, 60, 87, 88, 100])
def test_a_segment_that_is_cut_short_in_a_record(tmp_path: Path, left: int) -> None:
    """Wherever in the record it is, in its fixed fields or after them."""
    builder = StoreBuilder(tmp_path, segment_bytes=1 << 14)
    builder.extend(Row(body=bytes(200)) for _ in range(200))
    builder.write()
    for keep in (0, 3):
        with min((tmp_path / "commitlog").iterdir()).open("r+b") as file:
            file.truncate(builder.rows[keep].physical_offset + left)
        queue = QueueId("b", "T", 0)
        with pytest.raises((CorruptRecord, MessagesLost), match=r"points here, but|cut off with .*0000"):
            read(tmp_path, QueueRange(queue, 0, 50))
        rows = read(tmp_path, QueueRange(queue, 0, 200), fail=False, drop=True)
        standing = [row for row in builder.rows if row.queue_offset < keep or row.physical_offset >= 1 << 14]
        assert rows == [default_columns(row) for row in standing]
        # A time does not hide it: all were stored at one.
        queues, stored_ms = StoreQueues(StoreDirectory(tmp_path, "b"), EVERY), builder.rows[0].store_timestamp
        assert (queues.at_time(queue, stored_ms), queues.at_time(queue, stored_ms + 1, is_end=True)) == (0, 200)
        builder.write()


def test_packing_keeps_every_message_once() -> None:
    rnd = random.Random(4)
    for tasks in (1, 2, 7):
        ranges = [
            QueueRange(
                QueueId("b", f"T{index}", 0), begin := rnd.randrange(100), begin + rnd.choice([0, 1, 9000, 40_000])
            )
            for index in range(20)
        ]
        packs = packed(ranges, tasks)
        assert len(packs) == tasks
        assert max(sum(map(len, pack)) for pack in packs) <= -(-sum(map(len, ranges)) // tasks)
        joined = [(each.queue, at) for pack in packs for each in pack for at in range(each.begin, each.end)]
        assert joined == [(each.queue, at) for each in ranges for at in range(each.begin, each.end)]
    few = [QueueRange(QueueId("b", "T", number), 0, 3) for number in range(5)]
    assert len(packed(few, 4)) == 1
    for tasks in range(1, 20):
        sizes = [sum(map(len, pack)) for pack in packed(few, tasks, at_least=True)]
        assert len(sizes) == min(tasks, 15) and max(sizes) - min(sizes) <= 1
    assert packed([replace(each, end=0) for each in few], 4) == []


def test_a_record_that_two_queues_have_is_read_for_each(tmp_path: Path) -> None:
    """A light queue's entries point at records that another queue has as well."""
    builder = StoreBuilder(tmp_path)
    builder.extend(Row(topic="T", body=b"%d" % index) for index in range(40))
    builder.write()
    entries = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    light = tmp_path / "consumequeue" / "%LMQ%L" / "0"
    light.mkdir(parents=True)
    (light / f"{0:020d}").write_bytes(b"".join(entries[at * 20 : at * 20 + 20] for at in range(0, 40, 3)) + bytes(400))
    assert ranges_of(tmp_path) == {("T", 0): (0, 40)}
    assert ranges_of(tmp_path, QueueSelection(topics=frozenset({"%LMQ%L"}))) == {("%LMQ%L", 0): (0, 14)}
    rows = read(tmp_path, QueueRange(QueueId("b", "T", 0), 0, 40), QueueRange(QueueId("b", "%LMQ%L", 0), 0, 14))
    assert sorted(row["queueOffset"] for row in rows) == sorted([*range(40), *range(0, 40, 3)])
    assert all(row["body"] == b"%d" % row["queueOffset"] for row in rows)
