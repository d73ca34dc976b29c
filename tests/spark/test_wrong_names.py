"""Topics and paths that name nothing, or the same thing twice."""

import json
from pathlib import Path

import pytest

from spark.files.store_directory import find_stores
from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.rows.row_batches import spark_schema
from sprocket.common.errors import ConfigError
from tests.spark.conftest import read_rows
from tests.spark.store_builder import Row, StoreBuilder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store", queue_entries=10)
    builder.extend(Row(topic="Flights", queue_id=number % 2) for number in range(40))
    return builder.write()


@pytest.mark.parametrize(
    "topic", ["Flights/0", "Flights/../Flights", "../commitlog", "/etc", ".", "..", "x" * 256, "Fl\0ights"]
)
def test_a_topic_that_is_a_path_has_no_rows(store: Path, topic: str) -> None:
    assert read_rows(store, topics=frozenset({topic})) == []
    assert len(read_rows(store, topics=frozenset({topic, "Flights"}))) == 40


@pytest.mark.parametrize("topic", ["Flights/0", "../commitlog", ".", "x" * 256, "Fl\0ights"])
def test_a_topic_that_is_a_path_has_no_queues(store: Path, topic: str) -> None:
    assigned = json.dumps({topic: [0], "Flights": [1]})
    options = read_options({"path": str(store), "assign": assigned, "leaseTime": "0"})
    reader = QueueBatchReader(options, spark_schema(["topic"]))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows == [{"topic": "Flights"}] * 20


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
