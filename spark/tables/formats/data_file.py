"""Parquet files of a table: their descriptions, and the writer, which makes one file per hour.

An edge file: it creates directories and files, and syncs them before a commit names them.
"""

import json
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spark.tables.formats.parquet_settings import Compression, writer_settings

HOUR_MS: Final = 3_600_000
ROW_GROUP_ROWS: Final = 131_072
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
# Files that are open at once; store timestamps hardly ever step back by an hour.
_OPEN_FILES: Final = 4
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Columns whose minimum and maximum values let a reader skip a file.
_STATISTICS: Final = ("queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp")


@dataclass(frozen=True)
class DataFile:
    """One file; `path` is relative to its table.  `hour` counts from 1970; None in a table without partitions."""

    path: str
    hour: int | None
    rows: int
    size_bytes: int
    statistics: str = field(default="", compare=False)  # as Delta has them

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


def partition_path(hour: int | None) -> str:
    """``day=2026-01-31/hour=9/``; empty without partitions."""
    if hour is None:
        return ""
    day, hour_of_day = day_and_hour(hour)
    return f"day={day}/hour={hour_of_day}/"


def day_and_hour(hour: int) -> tuple[str, int]:
    """``2026-01-31`` and 9."""
    moment = _EPOCH + timedelta(hours=hour)
    return f"{moment:%Y-%m-%d}", moment.hour


def leftovers(directory: Path, attempt: str) -> list[Path]:
    """Return the files below `directory` that an attempt of this name has written."""
    return sorted(directory.rglob(f"part-{attempt}-*.parquet")) if directory.is_dir() else []


class DataWriter:
    """Writer of rows below `directory`: one file for each hour of their store timestamp, or one file for all."""

    def __init__(
        self,
        directory: Path,
        schema: pa.Schema,
        attempt: str,
        *,
        is_partitioned: bool = True,
        compression: Compression = Compression.ZSTD,
    ) -> None:
        self._directory = directory
        self._schema = schema
        self._compression = compression
        self._attempt = attempt
        self._is_partitioned = is_partitioned
        self._open: OrderedDict[int | None, _OpenFile] = OrderedDict()
        self.written: list[DataFile] = []

    def add(self, rows: pa.RecordBatch, hours: npt.NDArray[np.int64]) -> None:
        """Add `rows`, whose store timestamps lie in `hours`."""
        if not self._is_partitioned or rows.num_rows == 0:
            if rows.num_rows:
                self._file(None).add(rows)
            return
        cuts = np.flatnonzero(np.diff(hours)) + 1
        for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), rows.num_rows], strict=True):
            self._file(int(hours[begin])).add(rows.slice(begin, end - begin))

    def close(self) -> list[DataFile]:
        """Finish and sync every file."""
        for hour in list(self._open):
            self._finish(hour)
        return self.written

    def discard(self) -> None:
        """Delete the written files."""
        for each in self._open.values():
            each.discard()
        self._open.clear()
        for written in self.written:
            (self._directory / written.path).unlink(missing_ok=True)
        self.written = []

    def _file(self, hour: int | None) -> "_OpenFile":
        found = self._open.get(hour)
        if found is None:
            if len(self._open) >= _OPEN_FILES:
                self._finish(next(iter(self._open)))
            found = self._open[hour] = _OpenFile(self._directory, hour, self._schema, self._attempt, self._compression)
        self._open.move_to_end(hour)
        return found

    def _finish(self, hour: int | None) -> None:
        self.written.append(self._open.pop(hour).close())


class _OpenFile:
    def __init__(
        self, directory: Path, hour: int | None, schema: pa.Schema, attempt: str, compression: Compression
    ) -> None:
        self._hour = hour
        self._schema = schema
        self._relative = f"{partition_path(hour)}part-{attempt}-{uuid.uuid4().hex[:16]}.parquet"
        self._path = directory / self._relative
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, schema, **writer_settings(schema, compression))
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> DataFile:
        self._flush()
        self._writer.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        metadata = pq.read_metadata(self._path)
        return DataFile(self._relative, self._hour, self._rows, size, delta_statistics(metadata))

    def discard(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held, self._schema)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._rows += table.num_rows
            self._held, self._held_rows, self._held_bytes = [], 0, 0


def delta_statistics(metadata: pq.FileMetaData) -> str:
    """numRecords, minValues, maxValues, nullCount of a file.  Source: Delta protocol, per-file statistics."""
    lowest: dict[str, object] = {}
    highest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    for name in _STATISTICS:
        found = [
            metadata.row_group(group).column(columns[name]).statistics
            for group in range(metadata.num_row_groups)
            if name in columns
        ]
        if not found or any(each is None or not each.has_min_max for each in found):
            continue
        lowest[name] = _delta_value(min(each.min for each in found))
        highest[name] = _delta_value(max(each.max for each in found))
        nulls[name] = sum(each.null_count for each in found)
    return json.dumps({"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def _delta_value(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    return value


def offsets_from(paths: Iterable[Path], broker_name: str, begin: int) -> frozenset[tuple[int, int]]:
    """Physical and queue offsets of the rows of a broker, in these files, whose physical offset is `begin` or more."""
    columns = ["physicalOffset", "queueOffset"]
    filters = [("brokerName", "=", broker_name), ("physicalOffset", ">=", begin)]
    found: set[tuple[int, int]] = set()
    for path in paths:
        table = pq.read_table(path, columns=columns, filters=filters, partitioning=None)
        found.update(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
    return frozenset(found)
