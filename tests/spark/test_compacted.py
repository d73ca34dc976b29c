"""Spark reads compacted topics: what their compacted queues keep, and then the log, each message once."""

from pathlib import Path
from typing import Any

import pytest

from spark.options.source_options import read_options
from spark.rows.row_batches import spark_schema
from spark.source import LogReader
from sprocket.common.errors import StoreError
from tests.store.compaction.compacting import TOPIC
from tests.store.inspection.test_compacted_queues import compacted
from tests.store.rig import Stores, message

COUNT = 600
KEYS = 5


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    stores = Stores(tmp_path / "store")
    stores.fields["mapped_file_size_commit_log"] = 32 * 1024
    return stores


def rows(root: Path, **options: str) -> list[dict[str, Any]]:
    given = read_options({"path": str(root), "columns": "topic,keys,queueOffset,physicalOffset,body"} | options)
    reader = LogReader(given, spark_schema(given.columns))
    return [row for part in reader.partitions() for found in reader.read(part) for row in found.to_pylist()]


def shortened(stores: Stores) -> Path:
    """Return the root of a store whose compacted topic has lost the first segments of its log."""
    store = stores.open()
    store.append([message("Other", body=b"x")])
    stores.close(store)
    compacted(stores, count=COUNT, past=COUNT - 50)
    for path in stores.segments()[:2]:
        path.unlink()
    return stores.config.store_path_root_dir


def test_history_is_what_is_kept_and_then_the_log_and_the_table_is_the_newest_of_each_key(stores: Stores) -> None:
    root = shortened(stores)
    found = rows(root, subscribe=TOPIC)
    offsets = sorted(row["queueOffset"] for row in found)
    log_begin = next(n for n in range(COUNT) if set(range(n, COUNT)) <= set(offsets))
    assert 100 < log_begin < COUNT - 50
    assert len(offsets) == len(set(offsets))
    assert all(row["body"] == b"body %d" % row["queueOffset"] for row in found)
    newest: dict[str, int] = {}
    for row in found:
        newest[row["keys"]] = max(newest.get(row["keys"], -1), row["queueOffset"])
    assert newest == {f"k{key}": COUNT - KEYS + key for key in range(KEYS)}
    assert {row["topic"] for row in rows(root)} == {TOPIC}


def test_a_key_that_only_the_compacted_queue_has_is_a_row(stores: Stores) -> None:
    compacted(stores, count=COUNT)
    store = stores.open()
    for _ in range(100):
        store.append([message("Other", body=b"x" * 1000)])
    stores.close(store)
    for path in stores.segments()[:3]:
        path.unlink()
    root = stores.config.store_path_root_dir
    found = rows(root, subscribe=TOPIC)
    assert sorted(row["queueOffset"] for row in found) == list(range(COUNT - KEYS, COUNT))
    # Topics and times are filtered as in the log.
    assert rows(root, subscribe=TOPIC, startingTimestamp="2100-01-01T00:00:00Z") == []
    assert rows(root, subscribePattern="Pri.*") == found
    assert {row["topic"] for row in rows(root, subscribePattern="Other.*")} == {"Other"}


@pytest.mark.parametrize("suffix", [".queue", ".log"])
def test_a_damaged_part_is_an_error_and_no_shorter_table(stores: Stores, suffix: str) -> None:
    root = shortened(stores)
    for path in (root / "compacted").rglob(f"*{suffix}"):
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StoreError, match="is damaged"):
        rows(root, subscribe=TOPIC)
