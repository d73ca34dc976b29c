"""How fast one process reads a CommitLog, beside memcpy and beside Parquet of the same rows.

``python -m benchmarks.spark.read --megabytes 256`` writes a store with the broker's own writer, the same rows as
Parquet, and prints a table.  The store has four segments: three that are mapped, and the one that is written, which is
read.  Everything is in the page cache; each figure is the best of `--rounds`, of the reader and Parquet in turn.
Planning has a row of its own and is part of no other.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark.data import MEBIBYTE, write_store
from spark.columns import DEFAULT_COLUMNS
from spark.decode import DecodeOptions
from spark.filters import RowFilter
from spark.log_reader import read_span
from spark.options import SourceOptions
from spark.plan import Span, plan
from spark.segment import Segment, segment_paths

FIXED = ("queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "sysFlag")
_CRC: Final = DecodeOptions()
_NO_CRC: Final = DecodeOptions(check_crc=False)
READS: Final[dict[str, tuple[Sequence[str], DecodeOptions]]] = {
    "no column": ((), _CRC),
    "queueId": (("queueId",), _CRC),
    "6 fixed columns": (FIXED, _CRC),
    "body": (("body",), _CRC),
    "body, checkCRC=false": (("body",), _NO_CRC),
    "topic, tags": (("topic", "tags"), _CRC),
    "default 9 columns": (DEFAULT_COLUMNS, _CRC),
    "default 9 columns, checkCRC=false": (DEFAULT_COLUMNS, _NO_CRC),
}


def planned(root: Path) -> list[Span]:
    """What a read of the whole store reads."""
    return [span for task in plan(SourceOptions(paths=(str(root),)), RowFilter()) for span in task]


def read_columns(spans: Sequence[Span], columns: Sequence[str], decoding: DecodeOptions) -> int:
    """Decode `columns` of `spans` in this process; returns the rows."""
    rows = RowFilter()
    return sum(count for span in spans for _, count in read_span(span, columns, rows, decoding))


def write_parquet(root: Path, path: Path) -> None:
    """The default columns of the store as Parquet, as pyarrow writes it by default (snappy)."""
    columns = [*DEFAULT_COLUMNS, "sysFlag"]
    batches = [
        pa.RecordBatch.from_arrays(arrays, names=columns)
        for span in planned(root)
        for arrays, _ in read_span(span, columns, RowFilter(), DecodeOptions())
    ]
    pq.write_table(pa.Table.from_batches(batches), path)


@dataclass(frozen=True)
class Stopwatch:
    """Times work: `rounds` of each, by `clock` (seconds)."""

    rounds: int
    clock: Callable[[], float]

    def best(self, *works: Callable[[], object]) -> list[float]:
        """Seconds of the fastest round of each; they take turns."""
        times: list[list[float]] = [[] for _ in works]
        for _ in range(self.rounds):
            for work, took in zip(works, times, strict=True):
                began = self.clock()
                work()
                took.append(self.clock() - began)
        return [min(took) for took in times]


def main() -> None:
    """Write, measure, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="CPU seconds, where others use the machine too")
    options = parser.parse_args()
    watch = Stopwatch(options.rounds, time.process_time if options.cpu else time.perf_counter)
    with tempfile.TemporaryDirectory(prefix="spark-read-") as directory:
        root, parquet = Path(directory) / "store", Path(directory) / "rows.parquet"
        count = write_store(root, options.megabytes * MEBIBYTE).message_count
        write_parquet(root, parquet)
        _measure(root, parquet, count, watch)


def _measure(root: Path, parquet: Path, count: int, watch: Stopwatch) -> None:
    spans = planned(root)
    size = sum(span.end - span.begin for span in spans)
    with ExitStack() as stack:
        segments = [stack.enter_context(Segment(path, start)) for start, path in segment_paths(root / "commitlog")]
        copied = _copy_time(segments[0], watch) * size / segments[0].size
        (walked,) = watch.best(lambda: [segment.walk(0, segment.size) for segment in segments])
    print(f"{count:,} records, {size / 1e6:,.0f} MB of log, {parquet.stat().st_size / 1e6:,.0f} MB of Parquet\n")
    print("| what is read | ms | GB/s of log | against memcpy | against pyarrow Parquet, one thread |")
    print("|---|---|---|---|---|")
    _row("memcpy", size, copied, copied, None)
    _row("walk of the records", size, walked, copied, None)
    (took,) = watch.best(lambda: planned(root))
    print(f"| planning | {took * 1e3:.0f} |  |  |  |")
    for name, (columns, decoding) in READS.items():
        took, compared = watch.best(
            partial(read_columns, spans, columns, decoding),
            partial(pq.read_table, parquet, columns=list(columns), use_threads=False),
        )
        _row(name, size, took, copied, compared)


def _copy_time(segment: Segment, watch: Stopwatch) -> float:
    source = np.frombuffer(segment.data, np.uint8)
    target = source.copy()  # its pages exist before the first round
    return watch.best(lambda: np.copyto(target, source))[0]


def _row(name: str, size: int, took: float, copied: float, compared: float | None) -> None:
    against = "" if compared is None else f"{compared / took:.2f}x"
    print(f"| {name} | {took * 1e3:.0f} | {size / took / 1e9:.2f} | {copied / took:.2f} | {against} |", flush=True)


if __name__ == "__main__":
    main()
