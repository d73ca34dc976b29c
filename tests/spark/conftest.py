"""Shared by the tests of the Spark side."""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.decode.columns import DEFAULT_COLUMNS
from spark.decode.decoder import DecodeOptions
from spark.options.reading_options import ReadingOptions
from spark.options.source_options import SourceOptions
from spark.read.log_reader import read_span
from spark.read.plan import plan
from spark.rows.filters import RowFilter

# The light compiler: tests are short queries.
QUICK = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session, so one JVM, for all tests of a worker; skipped where there is no Java.

    A test that needs settings of its own takes ``spark_session.newSession()``.  `tests/tiers.py` lists the files that
    use this fixture, so that one worker gets them all.
    """
    from spark.session import close, session
    from sprocket.common.errors import ConfigError

    warehouse = tmp_path_factory.mktemp("warehouse")
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = session("local[2]", "tests", {"spark.sql.warehouse.dir": str(warehouse), **QUICK})
    except ConfigError as error:
        pytest.skip(str(error))
    # PySpark takes SIGINT for itself and never gives it back: other tests of this worker interrupt themselves.
    signal.signal(signal.SIGINT, interrupt)
    yield spark
    close(spark)


_READING = {field.name for field in fields(ReadingOptions)}


def read_rows(
    *paths: Path,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    rows: RowFilter | None = None,
    decode: DecodeOptions | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """What a query reads, without Spark: all tasks in turn."""
    reading = ReadingOptions(**{name: options.pop(name) for name in _READING & options.keys()})
    given = SourceOptions(paths=tuple(str(path) for path in paths), reading=reading, **options)
    rows = rows if rows is not None else RowFilter(given.topics, given.topic_pattern, given.times)
    found: list[dict[str, Any]] = []
    for task in plan(given, rows).tasks:
        for span in task:
            decoding = decode or given.decoding(span.store.broker_name)
            for arrays, count in read_span(span, columns, rows, decoding):
                batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
                assert batch.num_rows == count
                found += batch.to_pylist()
    return found
