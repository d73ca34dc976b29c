"""The ceiling of a backfill: pyarrow writing the rows of its table, which are in memory already, as Parquet.

With the settings of the table's own files, one file a process, all processes at once, and on the disk at the end.
"""

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from spark.tables.formats.data_file import ROW_GROUP_ROWS
from spark.tables.formats.parquet_settings import Compression, writer_settings

_barrier: Barrier | None = None
# Rows that a process holds: a part of a large table stands for all of it.
_MOST_BYTES: Final = 768 * 1024 * 1024
_START_LIMIT_S: Final = 120


class Ceiling:
    """`processes` of this machine that write; a context manager."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(
            processes, mp_context=context, initializer=_begin, initargs=(context.Barrier(processes),)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def rows_per_second(self, paths: Sequence[Path], directory: Path, compression: Compression) -> float:
        """Rows of the Parquet files `paths` that all processes together write below `directory` in a second."""
        # Each gets one at least, or it would wait for nobody.
        shares = [paths[index :: self._processes] or paths[:1] for index in range(self._processes)]
        targets = [directory / f"ceiling-{index}.parquet" for index in range(self._processes)]
        try:
            done = list(self._pool.map(_write, shares, targets, [compression] * self._processes))
        finally:
            for target in targets:
                target.unlink(missing_ok=True)
        return sum(rows for rows, _ in done) / max(seconds for _, seconds in done)


def _begin(barrier: Barrier) -> None:
    global _barrier  # what a process of the pool is given when it starts
    _barrier = barrier


def _write(paths: Sequence[Path], target: Path, compression: Compression) -> tuple[int, float]:
    """Rows, and the seconds that they took from memory to the disk."""
    assert _barrier is not None
    table = _held(paths)
    _barrier.wait(_START_LIMIT_S)
    began = time.perf_counter()
    with pq.ParquetWriter(target, table.schema, **writer_settings(table.schema, compression)) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
    descriptor = os.open(target, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return table.num_rows, time.perf_counter() - began


def _held(paths: Sequence[Path]) -> pa.Table:
    tables: list[pa.Table] = []
    for path in paths:
        tables.append(pq.read_table(path, partitioning=None))
        if sum(each.nbytes for each in tables) > _MOST_BYTES:
            break
    return pa.concat_tables(tables)
