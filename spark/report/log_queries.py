"""Queries over the records of the log itself.

The first query fixes the log's end, as a physical offset, for all others.  So the numbers of one page agree while a
broker keeps writing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from spark.report.findings import (
    PERCENTILES,
    BrokerTotals,
    Buckets,
    FailureFlow,
    Hot,
    HotValues,
    Latency,
    StoreLatency,
    TopicTotals,
)
from spark.report.topic_kinds import APPLICATION_PATTERN, group_of, kind_of
from sprocket.client.admin.redrive import REDRIVEN_FROM
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX

MAX_STEPS: Final = 720
_DAY_S: Final = 86_400
# A step, s, and the maximum time span for it, s.
_STEPS_S: Final = (
    (1, 300),
    (5, 900),
    *((step, step * (MAX_STEPS - 1)) for step in (60, 300, 900, 3600, 10_800, 21_600, 43_200, _DAY_S)),
)
_FAILURES_PATTERN: Final = f"({RETRY_PREFIX}|{DLQ_PREFIX}).*"


@dataclass(frozen=True)
class Log:
    """Records of a report: those of the paths, with the options, within the physical offsets."""

    spark: SparkSession
    paths: Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # broker -> first and last physical offset

    def read(self, *columns: str, **options: str) -> DataFrame:
        """Return a frame with these columns."""
        needed = [*columns, *(name for name in self._place_columns() if name not in columns)]
        reader = self.spark.read.format("rocketmq").options(**self.options).options(columns=",".join(needed))
        frame = reader.options(**options).load(list(self.paths))
        return frame.where(self._within()).select(*columns) if self.bounds else frame

    def up_to(self, brokers: Iterable[BrokerTotals]) -> "Log":
        """Return the log without records written after `brokers` were counted."""
        return replace(self, bounds={each.broker: (each.first_offset, each.last_offset) for each in brokers})

    def _place_columns(self) -> tuple[str, ...]:
        if not self.bounds:
            return ()
        return ("physicalOffset", "brokerName") if self._has_several else ("physicalOffset",)

    @property
    def _has_several(self) -> bool:
        # A store that was empty when the brokers were counted has no bounds.  It may have messages by now.
        return len(self.paths) > 1

    def _within(self) -> Column:
        offset = sf.col("physicalOffset")
        if not self._has_several:
            return offset.between(*next(iter(self.bounds.values())))
        within = sf.lit(False)
        for broker, bounds in self.bounds.items():
            within |= (sf.col("brokerName") == broker) & offset.between(*bounds)
        return within


def milliseconds(column: str) -> Column:
    return sf.unix_millis(sf.col(column))


def step_of(milliseconds_column: Column, buckets: Buckets) -> Column:
    """Return the index of the step at a time, as `Buckets.index` does."""
    second = sf.floor(milliseconds_column / sf.lit(1000)) - sf.lit(buckets.start_s)
    return sf.floor(second / sf.lit(buckets.step_s)).cast("int")


def buckets_between(first_ms: int, last_ms: int) -> Buckets:
    """Return steps that include both times: one minute up to 12 hours, finer below 15 minutes; at most `MAX_STEPS`."""
    span_s = last_ms // 1000 - first_ms // 1000 + 1
    days = -(-span_s // (MAX_STEPS - 1) // _DAY_S)
    step_s = next((step for step, max_s in _STEPS_S if span_s <= max_s), days * _DAY_S)
    start_s = first_ms // 1000 // step_s * step_s
    return Buckets(start_s, step_s, (last_ms // 1000 - start_s) // step_s + 1)


def count_topics(log: Log) -> tuple[list[TopicTotals], list[BrokerTotals], dict[int, int]]:
    """Return totals by topic (largest first) and by broker, and application messages by the bits of their size."""
    stored = milliseconds("storeTimestamp")
    rows = (
        log.read("brokerName", "topic", "bodySize", "storeSize", "storeTimestamp", "physicalOffset")
        .where("topic IS NOT NULL")  # mode=PERMISSIVE returns damage as rows without a topic
        .groupBy(
            "brokerName", "topic", sf.length(sf.bin("bodySize")).alias("bits"), (sf.col("bodySize") == 0).alias("none")
        )
        .agg(
            sf.count("*").alias("messages"),
            sf.sum("bodySize").alias("body_bytes"),
            sf.sum("storeSize").alias("store_bytes"),
            sf.min(stored).alias("first_ms"),
            sf.max(stored).alias("last_ms"),
            sf.min("physicalOffset").alias("first_offset"),
            sf.max("physicalOffset").alias("last_offset"),
        )
        .collect()
    )
    sizes: dict[int, int] = {}
    for row in rows:
        if kind_of(row["topic"]).value == "application":
            bits = 0 if row["none"] else row["bits"]
            sizes[bits] = sizes.get(bits, 0) + row["messages"]
    topics = [_topic_totals(name, some) for name, some in _grouped(rows, "topic").items()]
    brokers = [_broker_totals(name, some) for name, some in _grouped(rows, "brokerName").items()]
    return (
        sorted(topics, key=lambda each: (-each.messages, each.topic)),
        sorted(brokers, key=lambda each: each.broker),
        dict(sorted(sizes.items())),
    )


def _grouped(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return groups


def _topic_totals(topic: str, rows: list[Row]) -> TopicTotals:
    return TopicTotals(
        topic,
        kind_of(topic),
        sum(row["messages"] for row in rows),
        sum(row["body_bytes"] for row in rows),
        sum(row["store_bytes"] for row in rows),
        min(row["first_ms"] for row in rows),
        max(row["last_ms"] for row in rows),
    )


def _broker_totals(broker: str, rows: list[Row]) -> BrokerTotals:
    return BrokerTotals(
        broker,
        sum(row["messages"] for row in rows),
        sum(row["store_bytes"] for row in rows),
        min(row["first_ms"] for row in rows),
        max(row["last_ms"] for row in rows),
        min(row["first_offset"] for row in rows),
        max(row["last_offset"] for row in rows),
    )


def count_traffic(log: Log, buckets: Buckets, drawn: Sequence[str], rest: str) -> dict[str, list[int]]:
    """Return application messages per step: for each topic of `drawn`, and for all others together as `rest`."""
    frame = log.read("topic", "storeTimestamp").where(sf.col("topic").rlike(f"^{APPLICATION_PATTERN}$"))
    name = sf.when(sf.col("topic").isin(list(drawn)), sf.col("topic"))
    step = step_of(milliseconds("storeTimestamp"), buckets)
    rows = frame.groupBy(name.alias("name"), step.alias("step")).count().collect()
    traffic = {topic: [0] * buckets.count for topic in drawn}
    for row in rows:
        traffic.setdefault(row["name"] or rest, [0] * buckets.count)[row["step"]] += row["count"]
    return traffic


def measure_latency(log: Log, buckets: Buckets) -> StoreLatency:
    """Return the latency from birth to store, without delayed messages and redriven dead letters.

    A redriven message keeps its bornTimestamp, so its latency would include all its failures.
    """
    frame = log.read("topic", "bornTimestamp", "storeTimestamp", "properties")
    frame = frame.where(sf.col("topic").rlike(f"^{APPLICATION_PATTERN}$"))
    redriven = sf.expr(f"properties['{REDRIVEN_FROM}'] IS NOT NULL")
    # Properties that remain in a message after a delay level, a transaction, or the timer.
    held = sf.expr("properties['REAL_TOPIC'] IS NOT NULL OR properties['TIMER_OUT_MS'] IS NOT NULL") & ~redriven
    elapsed = milliseconds("storeTimestamp") - milliseconds("bornTimestamp")
    counted = sf.col("ms").isNotNull() & ~sf.col("held") & ~sf.col("redriven")
    value = sf.when(counted, sf.col("ms"))
    rows = (
        frame.select(
            "topic",
            step_of(milliseconds("storeTimestamp"), buckets).alias("step"),
            elapsed.alias("ms"),
            held.alias("held"),
            redriven.alias("redriven"),
        )
        .groupingSets([[sf.col("topic")], [sf.col("step")], []], sf.col("topic"), sf.col("step"))
        .agg(
            sf.grouping_id().alias("set"),
            *latency_figures(value),
            sf.count_if(counted & (sf.col("ms") < 0)).alias("negative"),
            sf.count_if(sf.col("held")).alias("held"),
            sf.count_if(sf.col("redriven")).alias("redriven"),
            sf.count_if(sf.col("ms").isNull()).alias("without"),
        )
        .collect()
    )
    found = [row for row in rows if row["messages"]]
    everything = next((row for row in rows if row["set"] == 3), None)
    if everything is None:
        return StoreLatency()
    return StoreLatency(
        sorted(
            (latency_of(row["topic"], row) for row in found if row["set"] == 1),
            key=lambda each: (-each.messages, each.name),
        ),
        latency_of("all topics", everything) if everything["messages"] else None,
        sorted(
            (row["step"], row["percentiles"][0], row["percentiles"][2], float(row["largest"]))
            for row in found
            if row["set"] == 2
        ),
        everything["negative"],
        everything["held"],
        everything["without"],
        everything["redriven"],
    )


def latency_figures(value: Column) -> list[Column]:
    """Return the columns that `latency_of` needs for some milliseconds."""
    return [
        sf.count(value).alias("messages"),
        sf.percentile(value, sf.lit(list(PERCENTILES))).alias("percentiles"),
        sf.max(value).alias("largest"),
    ]


def latency_of(name: str, row: Row) -> Latency:
    return Latency(name, row["messages"], tuple(row["percentiles"]), float(row["largest"]))


def find_hot(log: Log, column: str, count: int) -> HotValues:
    """Return the `count` most frequent values of `column` (tags or keys) within a topic.

    A message with several keys (separated by spaces) counts once for each of them.
    """
    frame = log.read("topic", column, "bodySize").where(sf.col("topic").rlike(f"^{APPLICATION_PATTERN}$"))
    if column == "keys":
        values = sf.array_distinct(sf.filter(sf.split("keys", " "), lambda key: key != ""))
        frame = frame.select("topic", sf.explode(values).alias("value"), "bodySize")
    else:
        frame = frame.select("topic", sf.col(column).alias("value"), "bodySize").where(
            "value IS NOT NULL AND value <> ''"
        )
    grouped = frame.groupBy("topic", "value").agg(sf.count("*").alias("messages"), sf.sum("bodySize").alias("bytes"))
    grouped = grouped.cache()
    try:
        totals = grouped.agg(sf.count("*").alias("different"), sf.sum("messages").alias("messages")).first()
        assert totals is not None
        top = grouped.orderBy(sf.desc("messages"), "topic", "value").limit(count).collect()
    finally:
        grouped.unpersist()
    return HotValues([Hot(*row) for row in top], totals["different"], totals["messages"] or 0)


def follow_failures(log: Log, buckets: Buckets) -> tuple[list[FailureFlow], dict[str, list[int]], dict[str, list[int]]]:
    """Return retries and dead letters: by group and origin, and by group over time."""
    origin = sf.expr("coalesce(properties['DLQ_ORIGIN_TOPIC'], properties['RETRY_TOPIC'])")
    rows = (
        log.read("topic", "storeTimestamp", "properties", subscribePattern=_FAILURES_PATTERN)
        .groupBy("topic", origin.alias("origin"), step_of(milliseconds("storeTimestamp"), buckets).alias("step"))
        .count()
        .collect()
    )
    flows: dict[tuple[str, str | None], list[int]] = {}
    steps: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for row in rows:
        is_dead, group = int(row["topic"].startswith(DLQ_PREFIX)), group_of(row["topic"])
        flows.setdefault((group, row["origin"]), [0, 0])[is_dead] += row["count"]
        steps[is_dead].setdefault(group, [0] * buckets.count)[row["step"]] += row["count"]
    by_size = sorted(flows.items(), key=lambda flow: (-sum(flow[1]), flow[0][0], flow[0][1] or ""))
    return [FailureFlow(*place, *counts) for place, counts in by_size], *steps
