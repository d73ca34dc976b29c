"""Tables as Spark reads them with Delta Lake's and Apache Iceberg's own code: filters, older versions, added columns.

Spark and both are fetched by Maven, of versions that fit one another (`java/tables/pom.xml`), whatever PySpark is here.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark.files.store_directory import StoreDirectory
from spark.tables.declaration import BodyType, TableDeclaration, TableFormat
from spark.tables.job import TableJob
from spark.tables.workers import LocalWorkers
from tests.compat import maven
from tests.spark.store_builder import Row, StoreBuilder

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = Path(maven.__file__).parent / "java" / "tables" / "SqlRows.java"
FIRST_MS = 1_700_000_000_000  # 2023-11-14 22:13:20
HOUR_MS = 3_600_000
SCHEMA = "n int, name string"
MORE = f"{SCHEMA}, lines array<struct<sku:string,count:int>>, marks map<string,bigint>"
RUNS = ((0, 60, SCHEMA), (60, 120, SCHEMA), (120, 180, MORE), (180, 200, MORE))
COMPACTED_AFTER = 120
_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action",
    "sun.util.calendar",
)  # fmt: skip
_LIMIT_S = 600


def body(n: int) -> dict[str, Any]:
    lines = [{"sku": f"s{n}", "count": each} for each in range(n % 3)]
    return {"n": n, "name": f"order {n}", "lines": lines, "marks": {"a": n}}


def stored_ms(n: int) -> int:
    """Three hours, from one partition into the next."""
    return FIRST_MS + n * 3 * HOUR_MS // 200


def is_in_hour_23(n: int) -> bool:
    return stored_ms(n) // HOUR_MS % 24 == 23


def make_tables(directory: Path) -> list[Row]:
    """A table of each format, in four runs: columns are added in the third, and files compacted after the second."""
    builder = StoreBuilder(directory / "store", segment_bytes=1 << 15)
    for begin, end, schema in RUNS:
        builder.extend(
            Row(topic="T", body=json.dumps(body(n)).encode(), store_timestamp=stored_ms(n)) for n in range(begin, end)
        )
        builder.write()
        for kind in (TableFormat.DELTA, TableFormat.ICEBERG):
            declared = TableDeclaration("T", directory / kind, kind, BodyType("json", schema))
            with TableJob(declared, [StoreDirectory(builder.root, "broker-a")], LocalWorkers(1)) as job:
                job.run_to_end()
                if end == COMPACTED_AFTER:
                    assert job.compact(2)
    return builder.rows


def ask(directory: Path, queries: list[str]) -> list[list[dict[str, Any]]]:
    """The rows of each query, by one Spark."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.rocketmq": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.rocketmq.type": "jdbc",
        "spark.sql.catalog.rocketmq.jdbc.schema-version": "V1",
        "spark.sql.catalog.rocketmq.uri": f"jdbc:sqlite:{directory}/iceberg/catalog.db",
        "spark.sql.catalog.rocketmq.warehouse": f"file://{directory}/iceberg",
    }
    command = [
        *maven.short_java(), "-Xmx1g", f"-Duser.dir={directory}",
        "-Dfile.encoding=UTF-8", "--add-modules=jdk.incubator.vector",
        *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED),
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-cp", maven.spark_classpath(), str(PROGRAM),
    ]  # fmt: skip
    done = subprocess.run(
        command, input="\n".join(queries), capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    lines = [line.partition("\t")[2] for line in done.stdout.splitlines() if line.startswith("rows\t")]
    if done.returncode or len(lines) != len(queries):
        raise RuntimeError(f"Spark: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """What each table says to each question, and the log's rows."""
    try:
        maven.spark_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    directory = tmp_path_factory.mktemp("tables")
    rows = make_tables(directory)
    delta = f"delta.`{directory / 'delta'}`"
    iceberg = "rocketmq.rocketmq.T"
    columns = "brokerName, queueId, queueOffset, physicalOffset, n, name, lines, marks"
    hour = "storeTimestamp >= '2023-11-14 23:00:00' AND storeTimestamp < '2023-11-15 00:00:00'"
    snapshots = _snapshots(directory / "iceberg")
    questions = {
        "delta": f"SELECT {columns} FROM {delta} ORDER BY physicalOffset",
        "iceberg": f"SELECT {columns} FROM {iceberg} ORDER BY physicalOffset",
        "delta hour": f"SELECT n FROM {delta} WHERE day = '2023-11-14' AND hour = 23 ORDER BY n",
        "delta time": f"SELECT n FROM {delta} WHERE {hour} ORDER BY n",
        "iceberg time": f"SELECT n FROM {iceberg} WHERE {hour} ORDER BY n",
        "delta history": f"DESCRIBE HISTORY {delta}",
        "delta old": f"SELECT n, name FROM {delta} VERSION AS OF 2 ORDER BY n",
        "iceberg history": f"SELECT operation FROM {iceberg}.snapshots ORDER BY committed_at",
        "iceberg old": f"SELECT n, name FROM {iceberg} VERSION AS OF {snapshots[1]} ORDER BY n",
    }
    yield dict(zip(questions, ask(directory, list(questions.values())), strict=True)), rows


def _snapshots(table: Path) -> list[int]:
    metadata = json.loads(max(table.glob("metadata/*.metadata.json")).read_text())
    ids: list[int] = [each["snapshot-id"] for each in metadata["snapshots"]]
    return ids


Answers = tuple[dict[str, Any], list[Row]]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_reads_the_log_after_added_columns_and_a_compaction(kind: str, answers: Answers) -> None:
    found, rows = answers[0][kind], answers[1]
    assert len(found) == len(rows) == 200
    for n, (row, message) in enumerate(zip(found, rows, strict=True)):
        expected = {
            "brokerName": "broker-a",
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "physicalOffset": message.physical_offset,
            **body(n),
        }
        if n < COMPACTED_AFTER:  # the columns were not there yet
            del expected["lines"], expected["marks"]
        assert row == expected


@pytest.mark.parametrize("question", ["delta hour", "delta time", "iceberg time"])
def test_filters_by_hour_find_what_is_in_it(question: str, answers: Answers) -> None:
    assert [row["n"] for row in answers[0][question]] == [n for n in range(200) if is_in_hour_23(n)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_reads_what_was_there_before(kind: str, answers: Answers) -> None:
    """After the second run."""
    expected = [{"n": n, "name": f"order {n}"} for n in range(COMPACTED_AFTER)]
    assert answers[0][f"{kind} old"] == expected


def test_spark_knows_the_history(answers: Answers) -> None:
    versions = sorted(answers[0]["delta history"], key=lambda row: int(row["version"]))
    assert [row["version"] for row in versions] == list(range(len(versions)))
    assert [row["operation"] for row in versions].count("WRITE") == len(RUNS)
    assert "OPTIMIZE" in {row["operation"] for row in versions}
    operations = [row["operation"] for row in answers[0]["iceberg history"]]
    assert operations.count("append") == len(RUNS)
    assert set(operations) == {"append", "overwrite"}
