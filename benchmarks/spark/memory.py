"""How much memory one task of a read takes, over what the interpreter and its libraries take anyway.

``python -m benchmarks.spark.memory --megabytes 1024`` writes a store of one segment with the broker's own writer, reads
all of it as one partition in a child process, and prints the growth of that process: mapped pages of the log included,
as the resident set counts them.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.spark.data import MEBIBYTE, write_store
from spark.decode.columns import DEFAULT_COLUMNS
from spark.options.source_options import SourceOptions
from spark.read.log_reader import read_span
from spark.read.plan import plan
from spark.rows.filters import RowFilter

READS: dict[str, Sequence[str]] = {"default 9 columns": DEFAULT_COLUMNS, "body": ("body",), "topic": ("topic",)}
_LIMIT_S = 500


def growth_of_a_read(root: Path, columns: Sequence[str], topics: Sequence[str] = ()) -> tuple[int, int]:
    """(rows, bytes by which the resident set of a process grows at its peak) for one partition over the whole store."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else "benchmarks.spark.memory", "--child", str(root)]
    command += ["--columns", ",".join(columns), "--topics", ",".join(topics)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    rows, grown = done.stdout.split()
    return int(rows), int(grown)


def _child(root: Path, columns: Sequence[str], topics: Sequence[str]) -> None:
    named = frozenset(topics) or None
    options = SourceOptions(
        paths=(str(root),), topics=named, min_partitions=1, max_partition_bytes=1 << 40, max_clock_step_back_ms=0
    )
    rows = RowFilter(named)
    tasks = plan(options, rows).tasks
    assert len(tasks) == 1
    # A first chunk, so that what every read loads is there.
    for _ in read_span(tasks[0][0], columns, rows, options.decoding()):
        break
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    count = sum(count for span in tasks[0] for _, count in read_span(span, columns, rows, options.decoding()))
    print(count, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    """Write, measure, print a Markdown table; or be the child."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--columns", default="", help=argparse.SUPPRESS)
    parser.add_argument("--topics", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _child(options.child, options.columns.split(","), [topic for topic in options.topics.split(",") if topic])
        return
    with tempfile.TemporaryDirectory(prefix="spark-memory-") as directory:
        root = Path(directory) / "store"
        count = write_store(root, options.megabytes * MEBIBYTE, segments=1).message_count
        print(
            f"{count:,} records, {options.megabytes} MiB, one partition\n\n| what is read | rows | MB |\n|---|---|---|"
        )
        for name, columns in READS.items():
            rows, grown = growth_of_a_read(root, columns)
            print(f"| {name} | {rows:,} | {grown / 1e6:,.0f} |")
        rows, grown = growth_of_a_read(root, DEFAULT_COLUMNS, ["topic-1"])
        print(f"| default 9 columns of one topic | {rows:,} | {grown / 1e6:,.0f} |")


if __name__ == "__main__":
    main()
