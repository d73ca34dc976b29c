"""A disk that is full: what it says, what it leaves, and how it goes on."""

import errno
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark.tables.declaration import TableFormat
from spark.tables.formats.table_place import existing_table
from spark.tables.job import TableJob
from spark.tables.workers import LocalWorkers, TaskFailed
from spark.tables.write_trouble import trouble, writing_to
from sprocket.common.errors import StoreError
from tests.spark.store_builder import StoreBuilder
from tests.spark.tables.orders import orders
from tests.spark.tables.test_job import check, declared, run, store_of


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "over"),
        ValueError("\x1b[31mcopy\x1b[0m:\n  No space left on device (os error 28)\n"),
        ValueError("database or disk is full"),
    ],
)
def test_a_full_disk_is_said_in_one_line_with_what_to_do(error: Exception) -> None:
    said = trouble(error, Path("/lake/orders"))
    assert said.startswith("/lake/orders: the disk is full (") and "free space and start again" in said
    assert said.isprintable()


def test_another_error_keeps_its_words_and_gets_the_place() -> None:
    with (
        pytest.raises(StoreError, match=r"^/lake/orders: \[Errno 13\] Permission denied: 'x'$"),
        writing_to(Path("/lake/orders")),
    ):
        raise OSError(errno.EACCES, "Permission denied", "x")


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_disk_that_gets_full_keeps_no_file_of_the_batch_and_loses_nothing(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend(orders(0, 300))
    declaration, store = declared(tmp_path, kind), store_of(builder)
    write_table, left = pq.ParquetWriter.write_table, iter(range(6))

    def write(self: pq.ParquetWriter, *arguments: Any, **named: Any) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_table(self, *arguments, **named)

    with monkeypatch.context() as patch, TableJob(declaration, [store], LocalWorkers(1)) as job:
        patch.setattr(pq.ParquetWriter, "write_table", write)
        with pytest.raises(TaskFailed, match="the disk is full"):
            job.run_to_end()
    committed = {each.name for each in existing_table(declaration.directory).files()}
    assert {path.name for path in declaration.directory.rglob("part-*.parquet")} == committed
    assert committed
    run(declaration, store)
    check(kind, declaration, builder.rows)


@pytest.mark.parametrize("kind", list(TableFormat))
def test_a_commit_that_fails_leaves_the_batch_to_be_done_again(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend(orders(0, 120))
    declaration, store = declared(tmp_path, kind), store_of(builder)
    with TableJob(declaration, [store], LocalWorkers(1)) as job:
        table = type(existing_table(declaration.directory))
        commit, tries = table.commit, iter(range(9))

        def fail(self: Any, *arguments: Any) -> None:
            if next(tries) == 1:  # after the dead letters
                raise StoreError("no space left on device")
            commit(self, *arguments)

        monkeypatch.setattr(table, "commit", fail)
        with pytest.raises(StoreError, match="no space left"):
            job.run_batch()
        job.run_to_end()
    check(kind, declaration, builder.rows)
