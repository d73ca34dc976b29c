"""SIGKILL at random moments: nothing is missing, nothing is there twice, in any format."""

import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from spark.tables.declaration import TableFormat
from spark.tables.formats.table_place import existing_table
from tests.spark.store_builder import StoreBuilder
from tests.spark.tables.kept_table import declaration
from tests.spark.tables.orders import orders
from tests.spark.tables.reading import read_table
from tests.spark.tables.test_job import check

ROOT = Path(__file__).resolve().parents[3]
MESSAGES = 1000
# Tables that are begun until the kill of a process comes before its end.
_ATTEMPTS = 5


def one_life(builder: StoreBuilder, table: Path, kind: TableFormat, seconds: float | None) -> float | None:
    """Keep the table until SIGKILL, `seconds` after the process could begin.

    Return how long it took, s, or None if it was killed before its end.
    """
    command = [sys.executable, "-m", "tests.spark.tables.kept_table", str(builder.root), str(table), kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "loaded\n"
        began = time.monotonic()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
    return time.monotonic() - began if "done" in rest else None


def killed_lives(builder: StoreBuilder, table: Path, kind: TableFormat, moments: list[float]) -> tuple[int, float]:
    """Kill a process at each of the moments, s, until one comes to its end.

    Return how many were killed, and how long the one took that was not, s; infinite if all were killed.
    """
    for killed, moment in enumerate(moments):
        took_s = one_life(builder, table, kind, moment)
        if took_s is not None:
            return killed, took_s
    return len(moments), math.inf


def live_and_die(tmp_path: Path, kind: TableFormat, lives: int, seed: int) -> int:
    """Return how many processes were killed before one came to its end."""
    random_moments = random.Random(seed)
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend(orders(0, MESSAGES, hours=2.0, of=MESSAGES))
    builder.write()
    # Machines differ several times in speed: the moments lie within what this one needs.
    longest_s = one_life(builder, tmp_path / "undisturbed", kind, None)
    assert longest_s is not None
    for number in range(_ATTEMPTS):
        table = tmp_path / f"table-{number}"
        moments = [random_moments.uniform(0.02, longest_s) for _ in range(lives)]
        killed, took_s = killed_lives(builder, table, kind, moments)
        if killed:
            break
        longest_s = min(longest_s, took_s)  # other programs had slowed down the undisturbed life
    assert one_life(builder, table, kind, None) is not None, "the last life was to come to its end"
    check(kind, declaration(table, kind), builder.rows)
    files = existing_table(table).files()
    if kind is TableFormat.PARQUET:
        assert ds.dataset(table, partitioning="hive").count_rows() == sum(each.rows for each in files)
        assert {path.name for path in table.rglob("part-*.parquet")} == {each.name for each in files}
    return killed


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_backfill_survives_kills(kind: str, tmp_path: Path) -> None:
    assert live_and_die(tmp_path, TableFormat(kind), 3, seed=7) >= 1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_backfill_survives_many_kills(kind: str, tmp_path: Path) -> None:
    killed = 0
    for seed in range(8):
        killed += live_and_die(tmp_path / str(seed), TableFormat(kind), 12, seed)
    assert killed >= 8


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_spark_reads_what_the_others_read(spark_session: Any, kind: str, tmp_path: Path) -> None:
    from spark.files.store_directory import StoreDirectory
    from spark.tables.job import TableJob
    from spark.tables.table_frame import table_frame
    from spark.tables.workers import LocalWorkers, SparkWorkers

    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    builder.extend(orders(0, 300))
    builder.write()
    declared = declaration(tmp_path / "table", TableFormat(kind))
    workers = SparkWorkers(spark_session) if kind == "parquet" else LocalWorkers(1)
    with TableJob(declared, [StoreDirectory(builder.root, "broker-a")], workers) as job:
        job.run_to_end()
    check(TableFormat(kind), declared, builder.rows)
    expected = read_table(TableFormat(kind), declared.directory)
    frame = table_frame(spark_session, str(declared.directory))
    assert sorted(row["n"] for row in frame.select("n").collect()) == sorted(row["n"] for row in expected)
    assert frame.where("name IS NULL").count() == 0
    if kind == "parquet":
        plain = spark_session.read.parquet(str(declared.directory))
        assert plain.count() == len(expected) and {"day", "hour"} <= set(plain.columns)
