"""How fast one process reads a CommitLog, beside memcpy and beside Parquet of the same rows.

``python -m benchmarks.spark.read --megabytes 256`` writes a store with the broker's own writer, the same rows as
Parquet, and prints a table.  Everything is in the page cache; each figure is the best of `--rounds`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark.data import MEBIBYTE, write_store
from spark.columns import DEFAULT_COLUMNS
from spark.decode import DecodeOptions
from spark.filters import RowFilter
from spark.log_reader import read_span
from spark.options import SourceOptions
from spark.plan import plan
from spark.segment import Segment, segment_paths

FIXED = ("queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "sysFlag")
READS: dict[str, Sequence[str]] = {
    "queueId": ("queueId",),
    "6 fixed columns": FIXED,
    "body": ("body",),
    "topic, tags": ("topic", "tags"),
    "default 9 columns": DEFAULT_COLUMNS,
}


def read_columns(root: Path, columns: Sequence[str]) -> int:
    """Decode `columns` of the whole store in this process; returns the rows."""
    rows = RowFilter()
    spans = [span for task in plan(SourceOptions(paths=(str(root),)), rows) for span in task]
    return sum(count for span in spans for _, count in read_span(span, columns, rows, DecodeOptions()))


def write_parquet(root: Path, path: Path) -> None:
    """The default columns of the store as Parquet, as pyarrow writes it by default (snappy)."""
    rows = RowFilter()
    columns = [*DEFAULT_COLUMNS, "sysFlag"]
    batches = [
        pa.RecordBatch.from_arrays(arrays, names=columns)
        for task in plan(SourceOptions(paths=(str(root),)), rows)
        for span in task
        for arrays, _ in read_span(span, columns, rows, DecodeOptions())
    ]
    pq.write_table(pa.Table.from_batches(batches), path)


def best(rounds: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest of `rounds`."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Write, measure, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-read-") as directory:
        root, parquet = Path(directory) / "store", Path(directory) / "rows.parquet"
        count = write_store(root, options.megabytes * MEBIBYTE, segments=1).message_count
        write_parquet(root, parquet)
        _measure(root, parquet, count, options.rounds)


def _measure(root: Path, parquet: Path, count: int, rounds: int) -> None:
    start, path = segment_paths(root / "commitlog")[0]
    with Segment(path, start) as segment:
        size = segment.walk(0, segment.size).stop
        copied = _copy_time(segment, size, rounds)
        walked = best(rounds, lambda: segment.walk(0, segment.size))
    print(f"{count:,} records, {size / 1e6:,.0f} MB of log, {parquet.stat().st_size / 1e6:,.0f} MB of Parquet\n")
    print("| what is read | GB/s of log | against memcpy | against pyarrow Parquet, one thread |")
    print("|---|---|---|---|")
    _row("memcpy", size, copied, copied, None)
    _row("walk of the records", size, walked, copied, None)
    for name, columns in READS.items():
        took = best(rounds, lambda columns=columns: read_columns(root, columns))
        names = list(columns)
        compared = best(rounds, lambda names=names: pq.read_table(parquet, columns=names, use_threads=False))
        _row(name, size, took, copied, compared)


def _copy_time(segment: Segment, size: int, rounds: int) -> float:
    source = np.frombuffer(segment.data, np.uint8, size)
    target = source.copy()  # its pages exist before the first round
    return best(rounds, lambda: np.copyto(target, source))


def _row(name: str, size: int, took: float, copied: float, compared: float | None) -> None:
    against = "" if compared is None else f"{compared / took:.2f}x"
    print(f"| {name} | {size / took / 1e9:.2f} | {copied / took:.2f} | {against} |", flush=True)


if __name__ == "__main__":
    main()
