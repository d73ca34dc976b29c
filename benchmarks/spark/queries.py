"""The queries that are timed: each over the log and over Parquet of the same rows, with the same result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from benchmarks.spark.data import BEGIN_MS, HOUR_MS, Data

_HOUR: Final = (BEGIN_MS + 9 * HOUR_MS, BEGIN_MS + 10 * HOUR_MS)
_TOPIC: Final = "topic-1"


@dataclass(frozen=True)
class Query:
    """`ask` takes a DataFrame that has at least `columns`; `options` say to the log's source what the query reads.

    `where` says the same to Parquet.  `goal` is the time over Parquet's that the design asks for.
    """

    name: str
    columns: str
    ask: Callable[[DataFrame], list[Row]]
    options: Mapping[str, str] = field(default_factory=dict)
    where: str = "true"
    goal: float | None = None

    def over_log(self, spark: SparkSession, data: Data) -> list[Row]:
        """The result from the log."""
        reader = spark.read.format("rocketmq").options(**self.options)
        if self.columns:
            reader = reader.option("columns", self.columns)
        return self.ask(reader.load(str(data.root)))

    def over_parquet(self, spark: SparkSession, path: str) -> list[Row]:
        """The result from Parquet."""
        return self.ask(spark.read.parquet(path).where(self.where))


def _count(frame: DataFrame) -> list[Row]:
    return [Row(count=frame.count())]


def _by_tags(frame: DataFrame) -> list[Row]:
    return sorted(frame.groupBy("topic", "tags").count().collect())


def _latency(frame: DataFrame) -> list[Row]:
    latency = f.col("storeTimestamp").cast("double") - f.col("bornTimestamp").cast("double")
    minute = f.date_trunc("minute", "storeTimestamp").alias("minute")
    grouped = frame.groupBy(minute).agg(f.percentile_approx(latency, 0.99).alias("p99"))
    return [grouped.agg(f.count("*").alias("minutes"), f.max("p99").alias("worst")).collect()[0]]


def _json_sum(frame: DataFrame) -> list[Row]:
    reading = f.from_json(f.col("body").cast("string"), "temperature double, status string")
    return [frame.agg(f.round(f.sum(reading.temperature), 1).alias("sum")).collect()[0]]


def _everything(frame: DataFrame) -> list[Row]:
    frame.write.format("noop").mode("overwrite").save()
    return []


_ONE_TOPIC: Final = {"subscribe": _TOPIC}
_ONE_HOUR: Final = {"startingTimestamp": str(_HOUR[0]), "endingTimestamp": str(_HOUR[1])}
_HOUR_SQL: Final = f"storeTimestamp >= timestamp_millis({_HOUR[0]}) and storeTimestamp < timestamp_millis({_HOUR[1]})"

QUERIES: Final = (
    Query("count of everything", "queueId", _count),
    Query("count of one topic", "queueId", _count, _ONE_TOPIC, f"topic = '{_TOPIC}'"),
    Query(
        "one topic, one hour", "queueId", _count, {**_ONE_TOPIC, **_ONE_HOUR}, f"topic = '{_TOPIC}' and {_HOUR_SQL}",
        goal=1.3,
    ),
    Query("one hour by topic and tags", "topic,tags", _by_tags, _ONE_HOUR, _HOUR_SQL),
    Query("all by topic and tags", "topic,tags", _by_tags, goal=4.0),
    Query("p99 of latency by minute", "bornTimestamp,storeTimestamp", _latency),
    Query("JSON on one topic", "body", _json_sum, _ONE_TOPIC, f"topic = '{_TOPIC}'", goal=0.8),
    Query("all rows, 9 columns", "", _everything, goal=1.25),
)  # fmt: skip
