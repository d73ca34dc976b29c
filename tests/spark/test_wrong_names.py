"""Topics and paths that name nothing, or the same thing twice."""

from pathlib import Path

import pytest

from spark.options import read_options
from spark.store_directory import find_stores
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
