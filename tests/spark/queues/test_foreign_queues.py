"""ConsumeQueues that are in order, but not those of this topic, or lack a file: no row is lost, doubled or wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.rows.row_batches import spark_schema
from spark.source import LogReader
from sprocket.common.errors import CorruptRecord
from tests.spark.conftest import read_rows
from tests.spark.naive_reader import default_columns
from tests.spark.store_builder import Row, StoreBuilder

TOPICS = ("Arrivals", "Starting")


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    """Two topics whose records are of one size, and whose queues are of one length."""
    built = StoreBuilder(tmp_path / "store", segment_bytes=1 << 14, queue_entries=30)
    built.extend(Row(topic=TOPICS[number % 2], queue_id=number // 2 % 2, body=bytes(100)) for number in range(400))
    built.write()
    return built


def queue(store: Path, topic: str, queue_id: int) -> Path:
    return store / "consumequeue" / topic / str(queue_id)


def one_copied_over_another(store: Path) -> None:
    shutil.rmtree(queue(store, "Starting", 0))
    shutil.copytree(queue(store, "Arrivals", 0), queue(store, "Starting", 0))


def one_moved_over_another(store: Path) -> None:
    shutil.rmtree(queue(store, "Starting", 0))
    shutil.move(queue(store, "Arrivals", 0), queue(store, "Starting", 0))


def topics_exchanged(store: Path) -> None:
    first, second = (queue(store, topic, 0).parent for topic in TOPICS)
    first.rename(store / "aside")
    second.rename(first)
    (store / "aside").rename(second)


def queues_exchanged(store: Path) -> None:
    first, second = (queue(store, "Starting", queue_id) for queue_id in (0, 1))
    first.rename(store / "aside")
    second.rename(first)
    (store / "aside").rename(second)


def oldest_file_gone(store: Path) -> None:
    min(queue(store, "Starting", 0).iterdir()).unlink()


def second_file_gone(store: Path) -> None:
    sorted(queue(store, "Starting", 0).iterdir())[1].unlink()


def newest_file_gone(store: Path) -> None:
    max(queue(store, "Starting", 0).iterdir()).unlink()


@pytest.mark.parametrize(
    "damage",
    [
        one_copied_over_another,
        topics_exchanged,
        queues_exchanged,
        oldest_file_gone,
        second_file_gone,
        newest_file_gone,
    ],
)
@pytest.mark.parametrize("wanted", [("Starting",), ("Arrivals", "Starting")])
def test_no_row_is_lost(builder: StoreBuilder, damage: Callable[[Path], None], wanted: tuple[str, ...]) -> None:
    damage(builder.root)
    expected = [default_columns(row) for row in builder.rows if row.topic in wanted]
    assert read_rows(builder.root, topics=frozenset(wanted)) == expected


def test_a_queue_that_was_moved_over_another(builder: StoreBuilder) -> None:
    one_moved_over_another(builder.root)
    expected = [default_columns(row) for row in builder.rows if row.topic == "Starting"]
    assert read_rows(builder.root, topics=frozenset({"Starting"})) == expected


def files_gone(store: Path) -> None:
    for number in (0, 1):
        for path in queue(store, "Starting", number).iterdir():
            path.unlink()


def topic_gone(store: Path) -> None:
    shutil.rmtree(queue(store, "Starting", 0).parent)


def file_going(store: Path) -> None:
    """It is listed, and not there when it is looked at."""
    (queue(store, "Starting", 0) / f"{20 * 30 * 99:020d}").symlink_to(store / "nothing")


@pytest.mark.parametrize("change", [files_gone, topic_gone, file_going])
def test_queues_that_go_after_a_query_was_planned(builder: StoreBuilder, change: Callable[[Path], None]) -> None:
    options = read_options({"path": str(builder.root), "subscribe": "Starting", "leaseTime": "0"})
    reader = LogReader(options, spark_schema(options.columns))
    tasks = reader.partitions()
    change(builder.root)
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows == [default_columns(row) for row in builder.rows if row.topic == "Starting"]


@pytest.mark.parametrize("damage", [one_copied_over_another, topics_exchanged, queues_exchanged])
def test_a_read_by_queue_offset_says_so(builder: StoreBuilder, damage: Callable[[Path], None]) -> None:
    damage(builder.root)
    given = {"path": str(builder.root), "assign": json.dumps({"Starting": [0]}), "leaseTime": "0"}
    with pytest.raises(CorruptRecord, match=r"ConsumeQueue of .*Starting.* points here, but"):
        by_queue_offset(given)
    assert by_queue_offset({**given, "mode": "DROPMALFORMED"}) == []


def by_queue_offset(given: dict[str, str]) -> list[dict[str, object]]:
    options = read_options(given)
    reader = QueueBatchReader(options, spark_schema(options.columns))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
