"""Merge of small files into large ones: their choice, and the copy row group by row group."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark.tables.formats.data_file import DataFile, DataWriter

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Merge:
    """Files of one partition that become one."""

    hour: int | None
    files: tuple[DataFile, ...]


def merges(files: Sequence[DataFile], target_bytes: int, min_files: int) -> list[Merge]:
    """Return the merges to do: in each partition, runs of files below half of `target_bytes`, together at most that.

    A partition with fewer than `min_files` small files is not changed; the minimum is 2.
    """
    partitions: defaultdict[int | None, list[DataFile]] = defaultdict(list)
    for each in files:
        if each.size_bytes < target_bytes / 2:
            partitions[each.hour].append(each)
    found = []
    for hour in sorted(partitions, key=lambda hour: -1 if hour is None else hour):
        small = sorted(partitions[hour], key=lambda each: (each.size_bytes, each.path))
        if len(small) >= max(2, min_files):
            found += [Merge(hour, run) for run in _runs(small, target_bytes) if len(run) > 1]
    return found


def _runs(files: Sequence[DataFile], target_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    run: list[DataFile] = []
    size = 0
    for each in files:
        if run and size + each.size_bytes > target_bytes:
            yield tuple(run)
            run, size = [], 0
        run.append(each)
        size += each.size_bytes
    if run:
        yield tuple(run)


def write_merged(merge: Merge, source: Path, target: Path, schema: pa.Schema, attempt: str) -> DataFile:
    """Write one file below `target` with the rows of all files of `merge`, which are below `source`.

    Columns that a file does not have are null.
    """
    writer = DataWriter(target, schema, attempt, is_partitioned=merge.hour is not None)
    try:
        for each in merge.files:
            with pq.ParquetFile(source / each.path) as file:
                for batch in file.iter_batches(_BATCH_ROWS):
                    writer.add(fitted(batch, schema), np.full(batch.num_rows, merge.hour or 0))
        return writer.close()[0]
    except BaseException:
        writer.discard()
        raise


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with the columns of `schema`; missing ones are null."""
    have = set(batch.schema.names)
    arrays = [
        batch.column(each.name).cast(each.type) if each.name in have else pa.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
