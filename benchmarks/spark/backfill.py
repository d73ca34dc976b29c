"""How fast a log becomes a table: Parquet, Delta and Iceberg, bodies as they are and decoded from JSON.

``python -m benchmarks.spark.backfill --megabytes 1024 --processes 2`` writes a store of one topic with the broker's own
writer and prints a table.  Everything is in the page cache; the workers are started before the clock is; each figure
is the best of `--rounds`, from an empty directory to the commit.  Beside each stands what pyarrow takes alone in the
same run: to write the same rows, which it has in memory already, with the same settings (`benchmarks.spark.ceiling`).
"""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.spark.ceiling import Ceiling
from benchmarks.spark.data import MEBIBYTE, write_store
from spark.files.store_directory import StoreDirectory
from spark.tables.declaration import BodyType, TableDeclaration, TableFormat
from spark.tables.formats.parquet_settings import Compression
from spark.tables.job import TableJob
from spark.tables.workers import LocalWorkers

TOPIC = "topic-0"
SCHEMA = "device string, temperature double, pressure double, status string, sequence bigint, samples array<bigint>"
BODIES = {"as they are": BodyType(), "text": BodyType("text"), "JSON": BodyType("json", SCHEMA)}


def seconds(store: StoreDirectory, declaration: TableDeclaration, workers: LocalWorkers) -> float:
    """From an empty directory to the commit."""
    for directory in (declaration.directory, declaration.dead_letter_directory):
        shutil.rmtree(directory, ignore_errors=True)
    began = time.perf_counter()
    with TableJob(declaration, [store], workers) as job:
        totals = job.run_to_end()
    took = time.perf_counter() - began
    assert totals.rows and not totals.dead_rows
    return took


def measured(
    store: StoreDirectory,
    declaration: TableDeclaration,
    workers: LocalWorkers,
    ceiling: Ceiling,
    rounds: int,
    count: int,
) -> tuple[float, float]:
    """Seconds of a backfill, and those that pyarrow alone takes for its `count` rows: of each the best, in turns."""
    backfills, alone = [], []
    for _ in range(rounds):
        backfills.append(seconds(store, declaration, workers))
        paths = sorted(declaration.directory.rglob("part-*.parquet"))
        rate = ceiling.rows_per_second(paths, declaration.directory.parent, declaration.compression)
        alone.append(count / rate)
    return min(backfills), min(alone)


def main() -> None:
    """Write, measure, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compression", type=Compression, choices=list(Compression), default=Compression.ZSTD)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="spark-backfill-") as directory,
        LocalWorkers(options.processes) as workers,
        Ceiling(options.processes) as ceiling,
    ):
        root = Path(directory)
        count = write_store(root / "store", options.megabytes * MEBIBYTE, topics=1).message_count
        store = StoreDirectory(root / "store", "broker-a")
        segments = store.segments()
        size = segments[-1].end - segments[0].start
        print(
            f"{count:,} messages, {size / 1e6:,.0f} MB of log, {options.processes} processes, {options.compression}\n"
        )
        print("| bodies | format | GB/s of log | s | MB of table | pyarrow alone, GB/s | of it |")
        print("|---|---|---|---|---|---|---|", flush=True)
        seconds(store, TableDeclaration(TOPIC, root / "warm"), workers)
        for name, body in BODIES.items():
            for kind in TableFormat:
                table = root / f"{kind}"
                declaration = TableDeclaration(
                    TOPIC, table, kind, body, batch_bytes=8 << 30, compression=options.compression
                )
                took, alone = measured(store, declaration, workers, ceiling, options.rounds, count)
                written = sum(path.stat().st_size for path in table.rglob("*.parquet"))
                print(
                    f"| {name} | {kind} | {size / took / 1e9:.2f} | {took:.2f} | {written / 1e6:,.0f} "
                    f"| {size / alone / 1e9:.2f} | {alone / took:.0%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
