"""Spark over the log beside Spark over Parquet of the same rows, in one run.

``python -m benchmarks.spark.run --gigabytes 4 --rounds 5`` writes a store with the broker's own writer, the default
columns of it as Parquet with Spark, and prints a table of medians; the two take turns.  `--topics` and several values
of `--gigabytes` show growth.  Everything is in the page cache as far as memory reaches.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import Row, SparkSession

from benchmarks.spark.data import MEBIBYTE, Data, write_store
from benchmarks.spark.queries import QUERIES, Query
from spark.session import close, session

T = TypeVar("T")


class UnequalError(Exception):
    """The log and Parquet gave different results."""


def write_parquet(spark: SparkSession, data: Data, path: Path) -> None:
    """The default columns of the store as Parquet, as Spark writes it by default (snappy, a file for each task)."""
    spark.read.format("rocketmq").load(str(data.root)).write.parquet(str(path))


def times_of(spark: SparkSession, query: Query, data: Data, parquet: Path, rounds: int) -> tuple[float, float]:
    """Median seconds over the log and over Parquet, after a round that is not counted.  Raises UnequalError."""
    over_log, over_parquet = [], []
    for number in range(rounds + 1):
        log_s, from_log = timed(lambda: query.over_log(spark, data))
        parquet_s, from_parquet = timed(lambda: query.over_parquet(spark, str(parquet)))
        _check(query, from_log, from_parquet)
        if number:
            over_log.append(log_s)
            over_parquet.append(parquet_s)
    return statistics.median(over_log), statistics.median(over_parquet)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds, and the result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def _check(query: Query, from_log: list[Row], from_parquet: list[Row]) -> None:
    if from_log != from_parquet:
        raise UnequalError(f"{query.name}: {from_log[:3]} from the log, {from_parquet[:3]} from Parquet")


def measure(spark: SparkSession, directory: Path, size_bytes: int, topics: int, rounds: int) -> None:
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
    for query in QUERIES:
        log_s, parquet_s = times_of(spark, query, data, parquet, rounds)
        goal = "" if query.goal is None else f"{query.goal:g}"
        print(f"| {query.name} | {log_s:.2f} | {parquet_s:.2f} | {log_s / parquet_s:.2f} | {goal} |", flush=True)


def main() -> None:
    """Measure each size with each number of topics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[4.0])
    parser.add_argument("--topics", type=int, nargs="+", default=[6])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", help="where the stores go (default: the system's temporary directory)")
    options = parser.parse_args()
    spark = session("local[2]", "benchmark", {"spark.driver.memory": "2g"})
    try:
        for gigabytes in options.gigabytes:
            for topics in options.topics:
                with tempfile.TemporaryDirectory(prefix="spark-queries-", dir=options.directory) as directory:
                    measure(spark, Path(directory), int(gigabytes * 1024) * MEBIBYTE, topics, options.rounds)
    finally:
        close(spark)


if __name__ == "__main__":
    main()
