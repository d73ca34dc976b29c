"""How a log is cut into tasks, and that no damaged ConsumeQueue costs a table a message."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spark.files.store_directory import StoreDirectory
from spark.tables import log_range
from spark.tables.declaration import BodyType, TableDeclaration, TableFormat
from spark.tables.job import TableJob
from spark.tables.log_range import task_bytes
from spark.tables.workers import LocalWorkers
from tests.spark.store_builder import Row, StoreBuilder
from tests.spark.tables.reading import read_table

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1, 15, 47, 300, 513, 700, 1100, 4096])
def test_every_process_has_as_many_tasks_as_the_others(size: int, processes: int) -> None:
    each = task_bytes(size * MEBIBYTE, processes)
    tasks = -(-size * MEBIBYTE // each)
    assert 16 * MEBIBYTE <= each <= 256 * MEBIBYTE
    assert tasks % processes == 0 or each == 16 * MEBIBYTE


def queue_files(store: Path) -> list[Path]:
    return sorted((store / "consumequeue" / "T" / "0").iterdir())


def nothing(store: Path) -> None:
    pass


def oldest_file_gone(store: Path) -> None:
    queue_files(store)[0].unlink()


def second_file_gone(store: Path) -> None:
    queue_files(store)[1].unlink()


def newest_file_gone(store: Path) -> None:
    queue_files(store)[-1].unlink()


def newest_file_cut(store: Path) -> None:
    os.truncate(queue_files(store)[-1], 60)


def files_gone(store: Path) -> None:
    for path in queue_files(store):
        path.unlink()


@pytest.mark.parametrize(
    "damage", [nothing, oldest_file_gone, second_file_gone, newest_file_gone, newest_file_cut, files_gone]
)
def test_a_damaged_consume_queue_costs_a_table_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(log_range, "_SCAN_BYTES", 0)  # as for a log that is too large to be scanned
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 14, queue_entries=30)
    builder.extend(Row("T" if number % 3 else "Other", number // 3 % 2, b"b" * 100) for number in range(400))
    builder.extend((Row("T", 0, b"not dispatched") for _ in range(3)), index=False)
    builder.write()
    damage(builder.root)
    declaration = TableDeclaration("T", tmp_path / "table", body=BodyType("binary"), batch_bytes=MEBIBYTE)
    with TableJob(declaration, [StoreDirectory(builder.root, "a")], LocalWorkers(1)) as job:
        job.run_to_end()
    found = [row["physicalOffset"] for row in read_table(TableFormat.PARQUET, declaration.directory)]
    assert found == [row.physical_offset for row in builder.rows if row.topic == "T"]
