"""Without the right to read: an error that says what to do, in every kind of read."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader

from spark.options.source_options import read_options
from spark.queue_scan import QueueBatchReader
from spark.rows.row_batches import spark_schema
from spark.source import LogReader
from sprocket.common.errors import ConfigError
from tests.spark.store_builder import Row, StoreBuilder

BY_OFFSET = {"startingOffsets": "earliest"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 12, queue_entries=10)
    builder.extend(Row(topic="Flights", body=bytes(100)) for _ in range(60))
    return builder.write()


def reader_of(store: Path, more: dict[str, str]) -> DataSourceReader:
    options = read_options({"path": str(store), "subscribe": "Flights", "leaseTime": "0", **more})
    return (QueueBatchReader if more else LogReader)(options, spark_schema(options.columns))


def refuse(monkeypatch: pytest.MonkeyPatch, refused: Path) -> None:
    """As for a user who may not read it; root may read everything."""
    really_open, really_os_open = Path.open, os.open

    def by_path(path: Path, *arguments: Any, **named: Any) -> Any:
        if path == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *arguments, **named)

    def by_descriptor(path: Any, *arguments: Any, **named: Any) -> int:
        if path == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return really_os_open(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", by_path)
    monkeypatch.setattr(os, "open", by_descriptor)


@pytest.mark.parametrize("more", [{}, BY_OFFSET], ids=["log", "queues"])
def test_a_segment_that_a_task_may_not_open(store: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]) -> None:
    reader = reader_of(store, more)
    partitions = reader.partitions()
    refuse(monkeypatch, sorted((store / "commitlog").iterdir())[1])
    with pytest.raises(ConfigError, match="needs the right to read the store"):
        [row for partition in partitions for row in reader.read(partition)]


@pytest.mark.parametrize("more", [{}, BY_OFFSET], ids=["log", "queues"])
def test_a_queue_that_may_not_be_read(store: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]) -> None:
    refuse(monkeypatch, max((store / "consumequeue" / "Flights" / "0").iterdir()))
    with pytest.raises(ConfigError, match="needs the right to read the store"):
        reader_of(store, more).partitions()
