"""Queries with Spark over the two CommitLogs and the consumers' files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from examples.demo.settings import TOPIC

_FLIGHT: Final = (
    "id string, carrier string, origin string, dest string, hour int, minute int, dep_delay double, arr_delay double"
)
_RECEIVED: Final = (
    "key string, bornMs long, storeMs long, receivedMs long, brokerName string, queueId int, queueOffset long"
)
_QUANTILES: Final = (0.5, 0.9, 0.99, 0.999, 1.0)


@dataclass(frozen=True)
class Delay:
    """Flights of one carrier scheduled for one minute of the day, with the sum of their delays."""

    carrier: str
    hour: int
    minute: int
    late_minutes: float | None
    departed: int  # the others were cancelled
    flights: int


@dataclass(frozen=True)
class Latency:
    """Latency of one consumer's messages, from the producer's clock to the consumer's, ms."""

    consumer: str
    messages: int
    quantiles: tuple[float, ...]


@dataclass(frozen=True)
class Counts:
    """Counts of keys and records that were sent, are in the logs, and were received."""

    records: int
    distinct_in_log: int
    acknowledged_not_in_log: int
    in_log_not_acknowledged: int
    in_log_not_received: int
    received_not_in_log: int
    received: int
    distinct_received: int


@dataclass(frozen=True)
class Findings:
    """Results of all queries."""

    counts: Counts
    delays: list[Delay]
    stored_per_second: list[tuple[str, int, int]]  # broker, second since 1970, messages
    latencies: list[Latency]
    latency_over_time: list[tuple[int, float, float]]  # second since 1970, median, 99th percentile

    @property
    def records_by_broker(self) -> dict[str, int]:
        """Records in the log of each broker."""
        totals: Counter[str] = Counter()
        for broker, _, count in self.stored_per_second:
            totals[broker] += count
        return dict(sorted(totals.items()))


def analyse(spark: SparkSession, stores: Sequence[Path], acknowledged: Path, received: Sequence[Path]) -> Findings:
    """Run the queries.  `acknowledged` has one key per line; `received` are the consumers' files."""
    log = read_log(spark, stores).cache()
    seen = spark.read.schema(_RECEIVED).csv([str(path) for path in received])
    seen = seen.withColumn("consumer", sf.regexp_extract(sf.input_file_name(), r"received-(\w+)\.csv", 1))
    sent = spark.read.schema("key string").csv(str(acknowledged))
    latencies, over_time = _latencies(seen)
    return Findings(_counts(log, sent, seen), _delays(log), _stored_per_second(log), latencies, over_time)


def read_log(spark: SparkSession, stores: Sequence[Path]) -> DataFrame:
    """Return the flights in the CommitLogs, one row per record."""
    records = (
        spark.read.format("rocketmq")
        .option("subscribe", TOPIC)
        .option("columns", "brokerName,storeTimestamp,keys,bodyString")
        .load([str(store) for store in stores])
    )
    flight = sf.from_json("bodyString", _FLIGHT).alias("flight")
    return records.select("brokerName", "storeTimestamp", sf.col("keys").alias("key"), flight).select(
        "brokerName", "storeTimestamp", "key", "flight.*"
    )


def _counts(log: DataFrame, sent: DataFrame, seen: DataFrame) -> Counts:
    """Count in one pass over the keys of log, sends and consumers."""
    sources = {"log": log, "sent": sent, "seen": seen}
    marked = [
        frame.select("key", *(sf.lit(int(name == other)).alias(other) for other in sources))
        for name, frame in sources.items()
    ]
    totals = reduce(DataFrame.unionByName, marked).groupBy("key").agg(*(sf.sum(name).alias(name) for name in sources))
    in_log, in_sent, in_seen = (sf.col(name) > 0 for name in sources)
    row = totals.agg(
        sf.sum("log").alias("records"),
        sf.count_if(in_log).alias("distinct_in_log"),
        sf.count_if(in_sent & ~in_log).alias("acknowledged_not_in_log"),
        sf.count_if(in_log & ~in_sent).alias("in_log_not_acknowledged"),
        sf.count_if(in_log & ~in_seen).alias("in_log_not_received"),
        sf.count_if(in_seen & ~in_log).alias("received_not_in_log"),
        sf.sum("seen").alias("received"),
        sf.count_if(in_seen).alias("distinct_received"),
    ).first()
    assert row is not None
    return Counts(**{name: value or 0 for name, value in row.asDict().items()})


def _delays(log: DataFrame) -> list[Delay]:
    """Return delays by carrier and scheduled minute; a flight that was sent twice counts once."""
    grouped = (
        log.dropDuplicates(["key"])
        .groupBy("carrier", "hour", "minute")
        .agg(sf.sum("dep_delay").alias("late"), sf.count("dep_delay").alias("departed"), sf.count("*").alias("flights"))
    )
    return [Delay(*row) for row in grouped.collect()]


def _stored_per_second(log: DataFrame) -> list[tuple[str, int, int]]:
    second = sf.unix_seconds("storeTimestamp").alias("second")
    rows = log.groupBy("brokerName", second).count().orderBy("second").collect()
    return [(row["brokerName"], row["second"], row["count"]) for row in rows]


def _latencies(seen: DataFrame) -> tuple[list[Latency], list[tuple[int, float, float]]]:
    """Return latencies by consumer and for both, and by the second of the send."""
    consumer, second = sf.col("consumer"), sf.col("second")
    rows = (
        seen.select("consumer", sf.floor(sf.col("bornMs") / 1000).alias("second"), sf.expr("receivedMs - bornMs AS ms"))
        .groupingSets([[consumer], [second], []], consumer, second)
        .agg(sf.count("*").alias("messages"), sf.percentile_approx("ms", list(_QUANTILES), 10_000).alias("quantiles"))
        .collect()
    )
    whole = [
        Latency(row["consumer"] or "both", row["messages"], tuple(row["quantiles"]))
        for row in rows
        if row["second"] is None
    ]
    over_time = [(row["second"], row["quantiles"][0], row["quantiles"][2]) for row in rows if row["second"] is not None]
    return sorted(whole, key=lambda each: (each.consumer == "both", each.consumer)), sorted(over_time)
