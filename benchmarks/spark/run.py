"""Spark over the log beside Spark over Parquet of the same rows, in one run.

``python -m benchmarks.spark.run --gigabytes 4 --rounds 5`` writes a store with the broker's own writer, the default
columns of it as Parquet with Spark, and prints a table of medians; the two take turns.  Several values of `--gigabytes`
and `--topics` end with tables of growth: seconds for each GB, and times Parquet.  One store is on the disk at a time.
Everything is in the page cache as far as memory reaches.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pyspark.sql import Row, SparkSession

from benchmarks.spark.data import MEBIBYTE, Data, write_store
from benchmarks.spark.queries import QUERIES, Query
from spark.session import close, session

T = TypeVar("T")

# Parquet of this data takes under two thirds of the log; the rest is room for Spark's own files.
_DISK_OF_LOG: Final = 1.8


class NoRoom(Exception):
    """The disk cannot hold what is to be written."""


@dataclass(frozen=True)
class Times:
    """Median seconds of each query, over the log and over Parquet."""

    gigabytes: float
    topics: int
    of_query: dict[str, tuple[float, float]]


class UnequalError(Exception):
    """The log and Parquet gave different results."""


def write_parquet(spark: SparkSession, data: Data, path: Path) -> None:
    """The default columns of the store as Parquet, as Spark writes it by default (snappy, a file for each task)."""
    spark.read.format("rocketmq").load(str(data.root)).write.parquet(str(path))


def rounds_of(
    spark: SparkSession, query: Query, data: Data, parquet: Path, rounds: int
) -> tuple[list[float], list[float]]:
    """Return the seconds over the log and over Parquet, after a round that is not counted.  Raises UnequalError."""
    over_log, over_parquet = [], []
    for number in range(rounds + 1):
        log_s, from_log = timed(lambda: query.over_log(spark, data))
        parquet_s, from_parquet = timed(lambda: query.over_parquet(spark, str(parquet)))
        _check(query, from_log, from_parquet)
        if number:
            over_log.append(log_s)
            over_parquet.append(parquet_s)
    return over_log, over_parquet


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds, and the result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def _check(query: Query, from_log: list[Row], from_parquet: list[Row]) -> None:
    if from_log != from_parquet:
        raise UnequalError(f"{query.name}: {from_log[:3]} from the log, {from_parquet[:3]} from Parquet")


def measure(spark: SparkSession, directory: Path, size_bytes: int, topics: int, rounds: int) -> Times:
    """Write, measure, print one table."""
    write_s, data = timed(lambda: write_store(directory / "store", size_bytes, topics))
    parquet = directory / "parquet"
    parquet_s, _ = timed(lambda: write_parquet(spark, data, parquet))
    parquet_bytes = sum(path.stat().st_size for path in parquet.glob("*.parquet"))
    print(
        f"\n{data.size_bytes / 1e9:.2f} GB of log, {data.message_count:,} messages, {topics} topics, written in "
        f"{write_s:.0f} s; {parquet_bytes / 1e9:.2f} GB of Parquet, written in {parquet_s:.1f} s\n"
    )
    print("| query | log, s | Parquet, s | log / Parquet | goal |\n|---|---|---|---|---|")
    found = {}
    for query in QUERIES:
        over_log, over_parquet = rounds_of(spark, query, data, parquet, rounds)
        log_s, parquet_s = found[query.name] = statistics.median(over_log), statistics.median(over_parquet)
        goal = "" if query.goal is None else f"{query.goal:g}"
        print(f"| {query.name} | {log_s:.2f} | {parquet_s:.2f} | {log_s / parquet_s:.2f} | {goal} |", flush=True)
    return Times(data.size_bytes / 1e9, topics, found)


def growth_table(measured: Sequence[Times]) -> str:
    """A line for each query, a column for each size and number of topics: seconds for each GB of log, times Parquet."""
    heads = [f"{times.gigabytes:.2g} GB, {times.topics} topics" for times in measured]
    lines = ["| s per GB (times Parquet) | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in measured[0].of_query:
        cells = []
        for times in measured:
            log_s, parquet_s = times.of_query[name]
            cells.append(f"{log_s / times.gigabytes:.2f} ({log_s / parquet_s:.2f})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def check_room(directory: Path, size_bytes: int) -> None:
    """Raises NoRoom, with what is missing, unless a store of this size and its Parquet fit on the disk."""
    needed = int(size_bytes * _DISK_OF_LOG)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise NoRoom(
            f"{directory}: {size_bytes / 1e9:.1f} GB of log and its Parquet need {needed / 1e9:.1f} GB and "
            f"{free / 1e9:.1f} GB are free: {(needed - free) / 1e9:.1f} GB are missing; --directory names another disk"
        )


def main() -> None:
    """Measure each size with each number of topics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[4.0])
    parser.add_argument("--topics", type=int, nargs="+", default=[6])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", help="where the stores go (default: the system's temporary directory)")
    options = parser.parse_args()
    place = Path(options.directory or tempfile.gettempdir())
    sizes = [int(gigabytes * 1024) * MEBIBYTE for gigabytes in options.gigabytes]
    check_room(place, max(sizes))
    spark = session("local[2]", "benchmark", {"spark.driver.memory": "2g"})
    measured = []
    try:
        for size in sizes:
            for topics in options.topics:
                check_room(place, size)
                with tempfile.TemporaryDirectory(prefix="spark-queries-", dir=place) as directory:
                    measured.append(measure(spark, Path(directory), size, topics, options.rounds))
    finally:
        close(spark)
        if len(measured) > 1:
            print("\n" + growth_table(measured))


if __name__ == "__main__":
    main()
