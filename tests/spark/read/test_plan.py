"""What a plan looks at, and how it deals a log out to tasks."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spark.files.consume_queue import open_queues
from spark.files.store_directory import find_stores
from spark.options.source_options import MEBIBYTE, SourceOptions
from spark.read.known_queues import KnownQueues
from spark.read.places import QueuePlaces
from spark.read.plan import plan
from spark.rows.filters import RowFilter
from tests.spark.conftest import read_rows
from tests.spark.store_builder import Row, StoreBuilder

TOPICS = 60


def store_of(root: Path, undispatched: int = 0, rows: int = 600) -> StoreBuilder:
    builder = StoreBuilder(root)
    builder.extend(Row(f"t{number % TOPICS}", number % 2, b"b" * 80) for number in range(rows))
    builder.extend((Row(f"t{number % 7}", 0, b"u" * 80) for number in range(undispatched)), index=False)
    builder.write()
    return builder


def planned(root: Path, **options: Any) -> list[Any]:
    given = SourceOptions(paths=(str(root),), **options)
    return plan(given, RowFilter(given.topics, given.topic_pattern, given.times)).tasks


@pytest.mark.parametrize("topics", [frozenset({"t41"}), None])
def test_a_plan_opens_the_queues_of_a_few_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: frozenset[str] | None
) -> None:
    store_of(tmp_path)
    opened: set[str] = set()
    really_open = os.open

    def noted(path: Any, *arguments: Any, **named: Any) -> int:
        parts = Path(path).parts
        if "consumequeue" in parts:
            opened.add(parts[parts.index("consumequeue") + 1])
        return really_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", noted)
    tasks = planned(tmp_path, topics=topics)
    assert tasks
    assert topics is None or topics < opened
    # A sample, the topic of the last record, and the one that is asked for.
    assert len(opened) <= 10


@pytest.mark.parametrize("undispatched", [0, 1, 15, 16, 17, 100, 300])
def test_what_was_dispatched_is_found_from_the_end_of_the_log(tmp_path: Path, undispatched: int) -> None:
    """Never too late; nor much too early, as what comes after it is scanned."""
    builder = store_of(tmp_path, undispatched)
    (store,) = find_stores([str(tmp_path)])
    offsets = [row.physical_offset for row in builder.rows]
    found = KnownQueues(store).dispatched_to(store.segments())
    ends = [*offsets[1:], store.segments()[-1].end]
    true_end = ends[len(offsets) - undispatched - 1]
    assert found <= true_end
    back = sum(found < end <= true_end for end in ends)
    assert back <= undispatched // 3


@pytest.mark.parametrize("undispatched", [1, 40])
def test_rows_that_are_not_dispatched_are_read(tmp_path: Path, undispatched: int) -> None:
    builder = store_of(tmp_path, undispatched)
    read = read_rows(tmp_path, topics=frozenset({"t3"}), columns=["physicalOffset"])
    assert [row["physicalOffset"] for row in read] == [row.physical_offset for row in builder.rows if row.topic == "t3"]


def test_a_queue_reaches_beyond_an_offset_even_if_it_is_the_last_of_all(tmp_path: Path) -> None:
    builder = store_of(tmp_path)
    builder.extend(Row("t9", 0, b"l" * 80) for _ in range(200))
    builder.write()
    (store,) = find_stores([str(tmp_path)])
    at = builder.rows[-1].physical_offset
    assert {queue.topic for queue in KnownQueues(store).near(at - 1)} == {"t9"}
    assert KnownQueues(store).near(store.segments()[-1].end) == []


@pytest.mark.parametrize("whole", [0, 1 << 20])
def test_places_are_those_of_single_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int) -> None:
    monkeypatch.setattr("spark.read.places._WHOLE_ENTRIES", whole)
    builder = store_of(tmp_path, rows=3000)
    end = builder.rows[-1].physical_offset + 1
    offsets = [*range(0, end, 997), end]
    for queue in open_queues(tmp_path, "t5"):
        places = QueuePlaces(queue, offsets)
        assert places.are_sound()
        for begin, past in pairwise(offsets):
            first, last = queue.range_of(begin, past)
            assert places.bytes_between(begin, past) == queue.entries(first, last)["size"].sum()
            assert queue.numbers_at([begin, past]) == [first, last]


@pytest.mark.parametrize("megabytes", [7, 50, 90, 130])
def test_processors_end_together(tmp_path: Path, megabytes: int) -> None:
    """Tasks come as a multiple of the processors, none is much larger than another, and all of the log is dealt out."""
    builder = StoreBuilder(tmp_path, segment_bytes=32 * MEBIBYTE, queue_entries=1000)
    builder.extend(Row("T", 0, b"b" * MEBIBYTE) for _ in range(megabytes))
    builder.write()
    tasks = planned(tmp_path, min_partitions=3, max_partition_bytes=20 * MEBIBYTE)
    sizes = [sum(span.end - span.begin for span in task) for task in tasks]
    (store,) = find_stores([str(tmp_path)])
    assert sum(sizes) == sum(segment.end - segment.start for segment in store.segments())
    assert megabytes < 12 or len(tasks) % 3 == 0
    assert max(sizes) - min(sizes) <= 10 * MEBIBYTE
