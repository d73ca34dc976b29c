"""The benchmark's queries at 256 MB: the log and Parquet of the same rows give the same results."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.spark.control import ConstantSource, over_control
from benchmarks.spark.data import MEBIBYTE, Data, write_store
from benchmarks.spark.queries import QUERIES, Query
from benchmarks.spark.run import NoRoom, Times, check_room, growth_table, write_parquet
from spark.decode.columns import DEFAULT_COLUMNS

pytestmark = pytest.mark.timeout(400)
# The rows of both; the queries read them at their own columns.
Both = tuple[Data, Path]


@pytest.fixture(scope="module")
def both(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Both:
    directory = tmp_path_factory.mktemp("queries")
    data = write_store(directory / "store", 256 * MEBIBYTE)
    write_parquet(spark_session, data, directory / "parquet")
    return data, directory / "parquet"


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_log_and_parquet_say_the_same(spark_session: Any, both: Both, query: Query) -> None:
    data, parquet = both
    from_log = query.over_log(spark_session, data)
    assert from_log == query.over_parquet(spark_session, str(parquet))
    if query.name == "count of everything":
        assert from_log[0]["count"] == data.message_count


def test_growth_is_a_line_for_each_query() -> None:
    measured = [Times(1.0, 6, {"count": (1.5, 0.5)}), Times(4.0, 100, {"count": (4.0, 2.0)})]
    assert growth_table(measured).splitlines() == [
        "| s per GB (times Parquet) | 1 GB, 6 topics | 4 GB, 100 topics |",
        "|---|---|---|",
        "| count | 1.50 (3.00) | 1.00 (2.00) |",
    ]


def test_what_does_not_fit_on_the_disk_is_not_begun(tmp_path: Path) -> None:
    check_room(tmp_path, 1)
    with pytest.raises(NoRoom, match="GB are missing"):
        check_room(tmp_path, 1 << 60)


@pytest.mark.parametrize("query", [query for query in QUERIES if not query.options], ids=lambda query: query.name)
def test_the_control_has_as_many_rows_of_the_same_shape(spark_session: Any, both: Both, query: Query) -> None:
    data, _ = both
    spark_session.dataSource.register(ConstantSource)
    reader = spark_session.read.format("constant").option("rows", data.message_count)
    frame = (reader.option("columns", query.columns) if query.columns else reader).load(str(data.root))
    assert frame.count() == data.message_count
    columns = query.columns.split(",") if query.columns else list(DEFAULT_COLUMNS)
    assert frame.columns == columns
    over_control(spark_session, query, data)
