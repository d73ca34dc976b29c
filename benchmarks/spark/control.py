"""What any Python data source costs in Spark: a control that returns the same batch again and again.

``python -m benchmarks.spark.control --gigabytes 1 --rounds 5`` runs two queries in turns over the log, over the
control, and over Parquet of the same rows.  The control plans as the reader of the log does.  Each of its tasks decodes
one batch of the log and returns it as often as the task has rows.  So what it takes is Spark's own: planning, tasks,
Arrow batches through a socket, and the query.  No reader written in Python can be faster.

Seconds are medians; CPU is that of the JVM and of all Python processes.  Times Parquet's are medians of the rounds.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.spark.data import MEBIBYTE, Data, write_store
from benchmarks.spark.queries import QUERIES, Query
from benchmarks.spark.run import timed, write_parquet
from benchmarks.system.process import cpu_s
from spark.options.source_options import read_options
from spark.rows.row_batches import spark_schema
from spark.session import close, session
from spark.source import LogPartition, LogReader

_ROWS: Final = "rows"
_QUERIES: Final = ("all by topic and tags", "all rows, 9 columns")
_PARQUET: Final = "Parquet"


@dataclass
class ConstantPartition(InputPartition):
    """Work of one task: as many rows as its part of the log has, about."""

    log: LogPartition
    rows: int


class ConstantSource(DataSource):
    """Data source ``constant``: options and schema of the source ``rocketmq``, and `rows`, the number of rows."""

    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> StructType:
        return spark_schema(read_options(self._options_of_log()).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ConstantReader(LogReader(read_options(self._options_of_log()), schema), int(self.options[_ROWS]))

    def _options_of_log(self) -> Mapping[str, str]:
        return {name: value for name, value in self.options.items() if name != _ROWS}


class ConstantReader(DataSourceReader):
    """Reader of `rows` rows: in each task, the first batch that `reader` gives."""

    def __init__(self, reader: LogReader, rows: int) -> None:
        self._reader = reader
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        planned = [part for part in self._reader.partitions() if isinstance(part, LogPartition)]
        weights = [sum(span.weight for span in part.spans) for part in planned]
        ends = [self._rows * sum(weights[: number + 1]) // sum(weights) for number in range(len(weights))]
        return [
            ConstantPartition(part, end - begin) for part, begin, end in zip(planned, [0, *ends], ends, strict=False)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ConstantPartition)
        batch = next(self._reader.read(partition.log))
        left = partition.rows
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


@dataclass(frozen=True)
class Cost:
    """Seconds of one query: on the clock, of the JVM's processors, of those of Python."""

    clock_s: float
    jvm_s: float
    python_s: float


def over_control(spark: SparkSession, query: Query, data: Data) -> list[Row]:
    """The query over the control."""
    reader = spark.read.format(ConstantSource.name()).options(**query.options).option(_ROWS, data.message_count)
    if query.columns:
        reader = reader.option("columns", query.columns)
    return query.ask(reader.load(str(data.root)))


def cost_of(work: Callable[[], object]) -> Cost:
    """The cost of `work`, in this process and all that it started."""
    before = _cpu_by_kind()
    clock_s, _ = timed(work)
    after = _cpu_by_kind()
    return Cost(clock_s, *(now - then for now, then in zip(after, before, strict=True)))


def _cpu_by_kind() -> tuple[float, float]:
    """CPU seconds of JVMs and of other processes among this process and its descendants."""
    jvm = python = 0.0
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        process = Path("/proc", str(pid))
        try:
            is_jvm = (process / "comm").read_text() == "java\n"
            children = [each.read_text().split() for each in (process / "task").glob("*/children")]
            used_s = cpu_s(pid)
        except OSError:  # it has ended
            continue
        waiting += [int(child) for found in children for child in found]
        jvm, python = (jvm + used_s, python) if is_jvm else (jvm, python + used_s)
    return jvm, python


def measure(spark: SparkSession, data: Data, parquet: Path, rounds: int) -> None:
    """Print one table."""
    print("| query | over | s | times Parquet's | JVM, CPU s | Python, CPU s |\n|---|---|--:|--:|--:|--:|")
    for query in (query for query in QUERIES if query.name in _QUERIES):
        works: dict[str, Callable[[Query], object]] = {
            "the log": lambda query: query.over_log(spark, data),
            "the control": lambda query: over_control(spark, query, data),
            _PARQUET: lambda query: query.over_parquet(spark, str(parquet)),
        }
        found: dict[str, list[Cost]] = {name: [] for name in works}
        for number in range(rounds + 2):
            for name, work in works.items():
                cost = cost_of(lambda: work(query))  # noqa: B023  # it is done before the next one
                if number > 1:  # the JVM compiles what it runs often
                    found[name].append(cost)
        for name, costs in found.items():
            ratio = statistics.median(
                cost.clock_s / other.clock_s for cost, other in zip(costs, found[_PARQUET], strict=True)
            )
            clock_s, jvm_s, python_s = (
                statistics.median(getattr(cost, field) for cost in costs) for field in ("clock_s", "jvm_s", "python_s")
            )
            print(f"| {query.name} | {name} | {clock_s:.2f} | {ratio:.2f} | {jvm_s:.2f} | {python_s:.2f} |", flush=True)


def main() -> None:
    """Write a store and its Parquet, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    # Workers import this module: by its name, not as the program that was started.
    from benchmarks.spark.control import ConstantSource as Source

    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    spark = session("local[2]", "benchmark", {"spark.driver.memory": "2g"})
    try:
        spark.dataSource.register(Source)
        with tempfile.TemporaryDirectory(prefix="spark-control-") as directory:
            data = write_store(Path(directory) / "store", int(options.gigabytes * 1024) * MEBIBYTE)
            parquet = Path(directory) / "parquet"
            write_parquet(spark, data, parquet)
            measure(spark, data, parquet, options.rounds)
    finally:
        close(spark)


if __name__ == "__main__":
    main()
