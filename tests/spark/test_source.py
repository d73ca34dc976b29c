"""Through Spark itself: few tests, one session."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.naive_reader import default_columns
from tests.spark.read.test_log_reader import mixed_rows
from tests.spark.store_builder import StoreBuilder

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreBuilder:
    builder = StoreBuilder(tmp_path_factory.mktemp("brokers") / "broker-a" / "store")
    builder.extend(mixed_rows(600))
    builder.write()
    return builder


def reader(spark: Any, **options: str) -> Any:
    return spark.read.format("rocketmq").options(**options)


def test_default_columns(spark_session: Any, store: StoreBuilder) -> None:
    frame = reader(spark_session).load(str(store.root))
    rows = frame.orderBy("physicalOffset").collect()
    assert [bytes(row["body"]) for row in rows] == [row.body for row in store.rows]
    expected = default_columns(store.rows[7])
    found = rows[7].asDict()
    for name in ("topic", "queueId", "queueOffset", "physicalOffset", "tags", "keys"):
        assert found[name] == expected[name]
    assert frame.selectExpr("unix_millis(storeTimestamp) AS ms").orderBy("ms").first()["ms"] == min(
        row.store_timestamp for row in store.rows
    )


def test_one_frame_in_several_queries(spark_session: Any, store: StoreBuilder) -> None:
    """Spark keeps what was pushed with the frame, so by default nothing is pushed."""
    frame = reader(spark_session).load(str(store.root))
    flights = [row for row in store.rows if row.topic == "Flights"]
    assert frame.where("topic = 'Flights'").count() == len(flights)
    assert frame.count() == len(store.rows)
    both = frame.where("queueId = 1").union(frame.where("queueId = 2"))
    assert both.count() == sum(row.queue_id in (1, 2) for row in store.rows)


def test_pushed_filters(spark_session: Any, store: StoreBuilder) -> None:
    frame = reader(spark_session, filterPushdown="true").load(str(store.root))
    query = frame.where(
        "topic IN ('Flights', 'Über') AND tags LIKE 'A%' AND queueId <> 2 AND storeTimestamp >= '2023-11-14 22:13:21'"
    )
    expected = [
        row.physical_offset
        for row in store.rows
        if row.topic in ("Flights", "Über")
        and (row.tags or "").startswith("A")
        and row.queue_id != 2
        and row.store_timestamp >= 1_700_000_001_000
    ]
    assert expected
    assert sorted(row["physicalOffset"] for row in query.collect()) == expected
    assert "Filter (" not in query._jdf.queryExecution().executedPlan().toString()


def test_options_and_columns(spark_session: Any, store: StoreBuilder) -> None:
    pattern = str(store.root.parents[1] / "*" / "store")
    options = {"subscribe": "Flights", "columns": "brokerName,topic,properties", "startingTimestamp": "1700000003000"}
    rows = reader(spark_session, **options).load(pattern).collect()
    expected = [row for row in store.rows if row.topic == "Flights" and row.store_timestamp >= 1_700_000_003_000]
    assert sorted(sorted(row["properties"].items()) for row in rows) == sorted(
        sorted(row.properties.items()) for row in expected
    )
    assert {row["brokerName"] for row in rows} == {store.root.parent.name}
    pruned = spark_session.read.schema("tags string, queueId int").format("rocketmq").load([str(store.root)])
    assert pruned.columns == ["tags", "queueId"]
    assert pruned.where("tags = 'AA'").count() == sum(row.tags == "AA" for row in store.rows)


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"subscribtion": "x"}, None, "did you mean 'subscribe'"),
        ({"columns": "tgas"}, None, "did you mean 'tags'"),
        ({"startingTimestamp": "yesterday"}, None, "neither milliseconds nor an ISO 8601"),
        ({"mode": "LENIENT"}, None, "FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ({}, "topc string", "did you mean 'topic'"),
        ({}, "queueId string", "is int, not string"),
    ],
)
def test_what_is_unknown_is_refused_by_name(
    spark_session: Any, store: StoreBuilder, options: dict[str, str], schema: str | None, message: str
) -> None:
    read = reader(spark_session, **options)
    with pytest.raises(PySparkException, match=message):
        (read.schema(schema) if schema else read).load(str(store.root)).count()


def test_a_contradiction_has_no_rows(spark_session: Any, store: StoreBuilder, tmp_path: Path) -> None:
    frame = reader(spark_session, filterPushdown="true", subscribe="Flights").load(str(store.root))
    assert frame.where("topic = 'Über'").count() == 0


def test_damage_as_rows_with_the_reason(spark_session: Any, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(mixed_rows(60))
    builder.patch(builder.rows[20].physical_offset, bytes(40))
    builder.write()
    frame = reader(spark_session, mode="PERMISSIVE").load(str(builder.root)).cache()
    assert frame.columns[-1] == "_corrupt_record"
    damaged = frame.where("_corrupt_record IS NOT NULL").collect()
    assert [
        row["_corrupt_record"].startswith(f"physical offset {builder.rows[20].physical_offset}, ") for row in damaged
    ]
    assert damaged[0]["topic"] is None
    assert frame.where("_corrupt_record IS NULL").count() == len(builder.rows) - 1
    frame.unpersist()
    with pytest.raises(PySparkException, match="mode=DROPMALFORMED and mode=PERMISSIVE skip it"):
        reader(spark_session).load(str(builder.root)).count()
    with pytest.raises(PySparkException, match="needs the column '_corrupt_record'"):
        spark_session.read.schema("topic string").format("rocketmq").option("mode", "PERMISSIVE").load(
            str(builder.root)
        ).count()


def test_spark_still_keeps_pushed_filters_with_the_frame(spark_session: Any, store: StoreBuilder) -> None:
    """Why nothing is pushed by default.  If this fails, Spark has changed: filters can be pushed always."""
    frame = reader(spark_session, filterPushdown="true").load(str(store.root))
    flights = frame.where("topic = 'Flights'").count()
    assert flights == sum(row.topic == "Flights" for row in store.rows)
    assert frame.count() == flights < len(store.rows)
