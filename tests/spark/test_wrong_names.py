"""Topics and paths that name nothing, or the same thing twice."""

import json
from pathlib import Path

import pytest

from spark.files.store_directory import find_stores
from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.rows.row_batches import spark_schema
from spark.source import LogReader
from sprocket.common.errors import ConfigError
from tests.spark.conftest import read_rows
from tests.spark.store_builder import Row, StoreBuilder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store", queue_entries=10)
    builder.extend(Row(topic="Flights", queue_id=number % 2) for number in range(40))
    declare(builder.root, "Flights")
    return builder.write()


def declare(store: Path, *topics: str) -> None:
    """Write the broker's table of topics."""
    (store / "config").mkdir(parents=True, exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {topic: {} for topic in topics}}))


@pytest.mark.parametrize(
    "topic", ["Flights/0", "Flights/../Flights", "../commitlog", "/etc", ".", "..", "x" * 256, "Fl\0ights"]
)
def test_a_topic_that_is_a_path_is_refused(store: Path, topic: str) -> None:
    with pytest.raises(ConfigError, match="no store has the topic"):
        read_rows(store, topics=frozenset({topic}))
    without_queues = store.parent / "log"
    (without_queues / "commitlog").mkdir(parents=True)
    for segment in (store / "commitlog").iterdir():
        (without_queues / "commitlog" / segment.name).hardlink_to(segment)
    # Only the log says which topics there are.
    assert read_rows(without_queues, topics=frozenset({topic})) == []
    assert len(read_rows(without_queues, topics=frozenset({topic, "Flights"}))) == 40


def test_a_misspelt_topic_is_refused_with_the_nearest_name(store: Path) -> None:
    for option in ({"subscribe": "Flihgts"}, {"assign": '{"Flihgts": [0]}'}, {"subscribe": "Flihgts,Flights"}):
        options = read_options({"path": str(store), "startingOffsets": "earliest", **option})
        with pytest.raises(ConfigError, match=r"no store has the topic 'Flihgts'; did you mean 'Flights'\?"):
            QueueBatchReader(options, spark_schema(["topic"])).partitions()
    with pytest.raises(ConfigError, match="did you mean 'Flights'"):
        LogReader(read_options({"path": str(store), "subscribe": "Flihgts"}), spark_schema(["topic"])).partitions()


def test_a_topic_without_a_message_has_no_rows(store: Path) -> None:
    declare(store, "New")
    assert read_rows(store, topics=frozenset({"New"})) == []
    assert len(read_rows(store, topics=frozenset({"New", "Flights"}))) == 40
    options = read_options({"path": str(store), "subscribe": "New", "startingOffsets": "earliest", "leaseTime": "0"})
    reader = QueueBatchReader(options, spark_schema(["topic"]))
    assert [row for task in reader.partitions() for row in reader.read(task)] == []


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*/rocketmq", "a"),
        ("*/rocketmq/commitlog", "a"),
        ("a/rocket*", "rocketmq"),
        ("?/rocketmq/commit*", "a"),
        ("a/rocketmq", "rocketmq"),
        ("x=*/rocketmq", "x"),
    ],
)
def test_a_store_that_a_glob_finds_alone(tmp_path: Path, pattern: str, name: str) -> None:
    builder = StoreBuilder(tmp_path / "a" / "rocketmq")
    builder.append(Row())
    builder.write()
    given, equals, path = pattern.rpartition("=")
    (found,) = find_stores([f"{given}{equals}{tmp_path / path}"])
    assert (found.root, found.broker_name) == (builder.root, name)


def test_one_directory_under_two_names(store: Path) -> None:
    with pytest.raises(ConfigError, match="is named twice in path, as 'a' and as 'b'"):
        find_stores([f"a={store}", f"b={store}"])
    assert [found.broker_name for found in find_stores([str(store), f"a={store}", str(store)])] == ["a"]


def test_paths_that_are_no_list() -> None:
    with pytest.raises(ConfigError, match="give 'path'"):
        read_options({"paths": "/data/a"})


def test_paths_of_the_scheme_file(store: Path) -> None:
    for path in (f"file:{store}", f"file://{store}", f"FILE://{store.parent}/st*", f"a=file://{store}"):
        assert [found.root for found in find_stores([path])] == [store]


@pytest.mark.parametrize("path", ["hdfs://namenode:8020/store", "s3a://bucket/store", "dbfs:/store", "a=abfss://b@c/d"])
def test_a_path_of_another_scheme(path: str) -> None:
    with pytest.raises(ConfigError, match="is read where it is mounted, not by"):
        find_stores([path])
