"""Consumption as the log shows it: traces of clients, and the checkpoints of pop.

A trace message holds contexts that end with 0x02; their fields are separated by 0x01.  ``SubBefore``: time (ms),
region, group, request id, message id, retries, keys.  ``SubAfter``: request id, message id, cost (ms), success, keys,
code.
Source: RocketMQ 5.3.3, `TraceDataEncoder`.

A checkpoint of pop is JSON: ``c`` group, ``t`` topic, ``q`` queue, ``so`` first queue offset, ``d`` distances of the
messages from it, ``pt`` time (ms).  Source: RocketMQ 5.3.3, `PopCheckPoint`.
"""

from collections import Counter, defaultdict
from itertools import accumulate
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark.report.findings import Buckets, GroupConsumption, Latency, Traced
from spark.report.log_queries import Log, latency_figures, latency_of, milliseconds, step_of
from spark.report.topic_kinds import APPLICATION_PATTERN, REVIVE_PATTERN

_CHECK_POINT: Final = "so long, d array<int>, t string, c string, q int, pt long"


def trace_contexts(log: Log, topic: str) -> DataFrame:
    """Return the contexts in trace topic `topic`: one row each, ``kind`` and ``field`` (an array of text)."""
    frame = log.read("bodyString", subscribe=topic, inflateBodies="true")
    context = sf.explode(sf.split("bodyString", "\x02")).alias("context")
    return (
        frame.select(context)
        .where("context <> ''")
        .select(sf.split("context", "\x01").alias("field"))
        .select(sf.col("field")[0].alias("kind"), "field")
    )


def first_deliveries(contexts: DataFrame) -> DataFrame:
    """Return the first delivery of each message to each group: ``group``, ``msgId``, ``taken`` (ms)."""
    before = contexts.where("kind = 'SubBefore' AND size(field) >= 8")
    return before.groupBy(sf.col("field")[3].alias("group"), sf.col("field")[5].alias("msgId")).agg(
        sf.min(sf.col("field")[1].cast("long")).alias("taken")
    )


def follow_trace(log: Log, buckets: Buckets, topic: str) -> Traced:
    """Return the latency until consumption, and the number of waiting messages over time.

    A message without a delivery in the trace does not count.
    """
    contexts = trace_contexts(log, topic).cache()
    stored = (
        log.read("msgId", "topic", "bornTimestamp", "storeTimestamp")
        .where(sf.col("topic").rlike(f"^{APPLICATION_PATTERN}$"))
        .groupBy("msgId")
        .agg(
            sf.min(milliseconds("bornTimestamp")).alias("born"), sf.min(milliseconds("storeTimestamp")).alias("stored")
        )
    )
    taken = first_deliveries(contexts).join(stored, "msgId", "left").cache()
    try:
        latencies, not_in_log = _latencies(taken)
        return Traced(_groups(contexts, latencies), _waiting(taken.where("stored IS NOT NULL"), buckets), not_in_log)
    finally:
        taken.unpersist()
        contexts.unpersist()


def _latencies(taken: DataFrame) -> tuple[dict[str, Latency], int]:
    """Return latencies by group for messages in the log, and the number of messages that are not in it."""
    elapsed = sf.col("taken") - sf.col("born")
    gone = sf.count_if(sf.col("stored").isNull()).alias("gone")
    rows = taken.groupBy("group").agg(*latency_figures(elapsed), gone).collect()
    latencies = {row["group"]: latency_of(row["group"], row) for row in rows if row["messages"]}
    return latencies, sum(row["gone"] for row in rows)


def _groups(contexts: DataFrame, latencies: dict[str, Latency]) -> list[GroupConsumption]:
    before = contexts.where("kind = 'SubBefore' AND size(field) >= 8").selectExpr(
        "field[3] AS group", "field[4] AS request", "field[5] AS msgId"
    )
    after = contexts.where("kind = 'SubAfter' AND size(field) >= 5").selectExpr(
        "field[1] AS request", "field[2] AS msgId", "CAST(field[3] AS long) AS ms", "field[4] = 'false' AS failed"
    )
    handled = before.join(after, ["request", "msgId"], "left").groupBy("group")
    rows = handled.agg(
        *latency_figures(sf.col("ms")), sf.count("*").alias("attempts"), sf.count_if("failed").alias("failures")
    )
    groups = [
        GroupConsumption(
            row["group"],
            latencies[row["group"]],
            latency_of(row["group"], row) if row["messages"] else None,
            row["attempts"],
            row["failures"],
        )
        for row in rows.collect()
        if row["group"] in latencies
    ]
    return sorted(groups, key=lambda each: (-each.latency.messages, each.group))


def _waiting(taken: DataFrame, buckets: Buckets) -> dict[str, list[int]]:
    """Return, by group, the number of messages stored but not delivered at the end of each step."""
    # If a consumer's clock is behind, count the delivery at the store timestamp.
    left = sf.greatest("taken", "stored")
    entered = taken.select("group", step_of(sf.col("stored"), buckets).alias("step"), sf.lit(1).alias("change"))
    events = entered.union(taken.select("group", step_of(left, buckets), sf.lit(-1)))
    changes: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for row in events.groupBy("group", "step").agg(sf.sum("change").alias("change")).collect():
        changes[row["group"]][row["step"]] += row["change"]
    return {
        group: list(accumulate(change[step] for step in range(buckets.count)))
        for group, change in sorted(changes.items())
    }


def follow_pops(log: Log, buckets: Buckets) -> dict[str, list[int | None]]:
    """Return, by ``group on topic``, the messages stored but not popped at the end of each step.

    A queue counts from its first pop on.  The value is None before the first pop and after the last.  The broker writes
    a checkpoint when its pop is due, so the latest checkpoints are missing.
    """
    points = (
        log.read("brokerName", "tags", "bodyString", subscribePattern=REVIVE_PATTERN)
        .where("tags = 'ck'")
        .select("brokerName", sf.from_json("bodyString", _CHECK_POINT).alias("point"))
        .select("brokerName", "point.*")
        .where("c IS NOT NULL AND t IS NOT NULL AND size(d) > 0")
        .groupBy("brokerName", "c", "t", "q", step_of(sf.col("pt"), buckets).alias("step"))
        .agg(sf.max(sf.col("so") + sf.array_max("d") + 1).alias("next"))
        .collect()
    )
    popped: defaultdict[tuple[str, str], dict[tuple[str, int], dict[int, int]]] = defaultdict(dict)
    for row in points:
        queue = popped[row["c"], row["t"]].setdefault((row["brokerName"], row["q"]), {})
        step = max(row["step"], 0)
        queue[step] = max(row["next"], queue.get(step, 0))
    ends = _ends(log, buckets, sorted({topic for _, topic in popped}))
    return {
        f"{group} on {topic}": _lag_of(
            queues, {place: ends.get((topic, *place), {}) for place in queues}, buckets.count
        )
        for (group, topic), queues in sorted(popped.items())
    }


def _ends(log: Log, buckets: Buckets, topics: list[str]) -> dict[tuple[str, str, int], dict[int, int]]:
    """Return, by (topic, broker, queue) and step, the queue's end after the step's last message."""
    ends: dict[tuple[str, str, int], dict[int, int]] = {}
    if topics:
        rows = (
            log.read("brokerName", "topic", "queueId", "queueOffset", "storeTimestamp", subscribe=",".join(topics))
            .groupBy("brokerName", "topic", "queueId", step_of(milliseconds("storeTimestamp"), buckets).alias("step"))
            .agg((sf.max("queueOffset") + 1).alias("end"))
            .collect()
        )
        for row in rows:
            ends.setdefault((row["topic"], row["brokerName"], row["queueId"]), {})[row["step"]] = row["end"]
    return ends


def _lag_of(
    queues: dict[tuple[str, int], dict[int, int]], ends: dict[tuple[str, int], dict[int, int]], steps: int
) -> list[int | None]:
    lag: list[int | None] = [None] * steps
    last = min(steps - 1, max(step for nexts in queues.values() for step in nexts))
    for place, nexts in queues.items():
        popped_to, end = None, 0
        for step in range(last + 1):
            popped_to = max(popped_to or 0, nexts[step]) if step in nexts else popped_to
            end = max(end, ends[place].get(step, 0))
            if popped_to is not None:
                lag[step] = (lag[step] or 0) + max(0, end - popped_to)
    return lag
