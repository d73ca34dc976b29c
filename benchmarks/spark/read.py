"""How fast one process reads a CommitLog, beside memcpy and beside Parquet of the same rows.

``python -m benchmarks.spark.read --megabytes 256`` writes a store with the broker's own writer, the same rows as
Parquet, and prints a table.  The store has four segments.  Everything is in the page cache; each figure is the best of
`--rounds`, of the reader and Parquet in turn.  Planning has a row of its own and is part of no other.

Reads that check the CRCs of records stand beside Parquet twice: as pyarrow reads it by default, which checks nothing,
and written with checksums of pages that are verified.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark.data import MEBIBYTE, write_store
from spark.decode.columns import DEFAULT_COLUMNS
from spark.decode.decoder import DecodeOptions
from spark.files.segment import PAGE_BYTES, Segment, WindowMemory, segment_paths
from spark.options.source_options import SourceOptions
from spark.read.log_reader import WINDOW_BYTES, read_span
from spark.read.plan import Span, plan
from spark.rows.filters import RowFilter

FIXED = ("queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "sysFlag")
_AGAINST: Final = "against pyarrow Parquet, one thread"
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
    return [span for task in plan(SourceOptions(paths=(str(root),)), RowFilter()).tasks for span in task]


def read_columns(spans: Sequence[Span], columns: Sequence[str], decoding: DecodeOptions) -> int:
    """Decode `columns` of `spans` in this process; returns the rows."""
    rows = RowFilter()
    return sum(count for span in spans for _, count in read_span(span, columns, rows, decoding))


def walk_segments(root: Path) -> int:
    """Walk the chain of records of each segment, window by window as a reader does; returns the records."""
    memory = WindowMemory(WINDOW_BYTES + PAGE_BYTES)
    count = 0
    for start, path in segment_paths(root / "commitlog"):
        with path.open("rb") as file:
            at, before = start, -1
            while at != before:
                window = Segment.window(path, file.fileno(), start, at, WINDOW_BYTES, memory)
                walk = window.walk(at - window.start, window.size)
                count += walk.positions.size
                before, at = at, window.start + walk.stop
    return count


def write_parquet(root: Path, path: Path, checked_path: Path) -> None:
    """The default columns of the store as Parquet, as pyarrow writes it by default (snappy), and with checksums."""
    columns = [*DEFAULT_COLUMNS, "sysFlag"]
    batches = [
        pa.RecordBatch.from_arrays(arrays, names=columns)
        for span in planned(root)
        for arrays, _ in read_span(span, columns, RowFilter(), DecodeOptions())
    ]
    table = pa.Table.from_batches(batches)
    pq.write_table(table, path)
    pq.write_table(table, checked_path, write_page_checksum=True)


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
        root, parquet, checked = (Path(directory) / name for name in ("store", "rows.parquet", "checked.parquet"))
        count = write_store(root, options.megabytes * MEBIBYTE).message_count
        write_parquet(root, parquet, checked)
        _measure(root, parquet, checked, count, watch)


def _measure(root: Path, parquet: Path, checked: Path, count: int, watch: Stopwatch) -> None:
    spans = planned(root)
    size = sum(span.end - span.begin for span in spans)
    assert walk_segments(root) == count
    (start, path), *_ = segment_paths(root / "commitlog")
    with Segment(path, start) as segment:
        copied = _copy_time(segment, watch) * size / segment.size
    (walked,) = watch.best(lambda: walk_segments(root))
    print(
        f"{count:,} records of {size / count:,.0f} bytes, {size / 1e6:,.0f} MB of log, "
        f"{parquet.stat().st_size / 1e6:,.0f} MB of Parquet\n"
    )
    print(f"| what is read | ms | GB/s of log | against memcpy | {_AGAINST} | with page checksums |")
    print("|---|---|---|---|---|---|")
    _row("memcpy", size, copied, copied)
    _row("windows and the walk of their records", size, walked, copied)
    (took,) = watch.best(lambda: planned(root))
    print(f"| planning | {took * 1e3:.0f} |  |  |  |  |")
    for name, (columns, decoding) in READS.items():
        checks = decoding.check_crc is None and "body" in columns
        took, *compared = watch.best(
            partial(read_columns, spans, columns, decoding),
            partial(pq.read_table, parquet, columns=list(columns), use_threads=False),
            *[
                partial(
                    pq.read_table, checked, columns=list(columns), use_threads=False, page_checksum_verification=True
                )
            ]
            * checks,
        )
        _row(name, size, took, copied, *compared)


def _copy_time(segment: Segment, watch: Stopwatch) -> float:
    source = np.frombuffer(segment.data, np.uint8)
    target = source.copy()  # its pages exist before the first round
    return watch.best(lambda: np.copyto(target, source))[0]


def _row(
    name: str, size: int, took: float, copied: float, parquet: float | None = None, checked: float | None = None
) -> None:
    against, against_checked = ("" if other is None else f"{other / took:.2f}x" for other in (parquet, checked))
    speed = f"{took * 1e3:.0f} | {size / took / 1e9:.2f} | {copied / took:.2f}"
    print(f"| {name} | {speed} | {against} | {against_checked} |", flush=True)


if __name__ == "__main__":
    main()
