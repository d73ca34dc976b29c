"""Collection of the findings about some stores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

from spark.files.store_directory import find_stores
from spark.report.committed import committed_lags
from spark.report.consumption import follow_pops, follow_trace
from spark.report.findings import Findings, GroupLag
from spark.report.log_queries import (
    Log,
    buckets_between,
    count_topics,
    count_traffic,
    find_hot,
    follow_failures,
    measure_latency,
)
from spark.report.topic_kinds import TopicKind, kind_of
from sprocket.remoting.message.topic_names import REVIVE_TOPIC_PREFIX, TRACE_TOPIC

# Number of topics with a series of their own; the others share one.
DRAWN: Final = 7
REST: Final = "all other topics"
_HOT: Final = 15


def survey(
    spark: SparkSession,
    paths: Sequence[str],
    options: Mapping[str, str] | None = None,
    trace_topic: str = TRACE_TOPIC,
) -> Findings:
    """Return the findings about the stores that `paths` name.  `options` are read options such as startingTimestamp.

    Raises ConfigError for a path that is no store, and Spark's exceptions.
    """
    stores = find_stores(paths)
    lags: list[GroupLag] = []
    missing: list[tuple[str, str]] = []
    for store in stores:
        found, why_none = committed_lags(store)
        lags += found
        if why_none is not None:
            missing.append(("Consumer lag now", why_none))
    named = [f"{store.broker_name}={store.root}" for store in stores]
    findings = Findings(
        [f"{store.broker_name} ({store.root})" for store in stores],
        lags=sorted(lags, key=lambda each: (-each.lag, each.group, each.topic, each.broker)),
    )
    log = Log(spark, named, options or {})
    topics, brokers, sizes = count_topics(log)
    if not topics:
        return replace(findings, missing=missing)
    findings = replace(findings, topics=topics, brokers=brokers, sizes=sizes)
    return _with_log(findings, log.up_to(brokers), trace_topic, missing)


def _with_log(findings: Findings, log: Log, trace_topic: str, missing: list[tuple[str, str]]) -> Findings:
    topics, brokers = findings.topics, findings.brokers
    names = {topic.topic for topic in topics}
    buckets = buckets_between(min(each.first_ms for each in brokers), max(each.last_ms for each in brokers))
    findings = replace(findings, buckets=buckets, missing=missing)
    applications = [topic.topic for topic in findings.of_kind(TopicKind.APPLICATION)]
    if applications:
        # A single further topic gets its own series: "all others" would only hide its name.
        drawn = applications if len(applications) <= DRAWN + 1 else applications[:DRAWN]
        findings = replace(
            findings,
            traffic=count_traffic(log, buckets, drawn, REST),
            latency=measure_latency(log, buckets),
            tags=find_hot(log, "tags", _HOT),
            keys=find_hot(log, "keys", _HOT),
        )
    if any(kind_of(name) in (TopicKind.RETRY, TopicKind.DEAD_LETTER) for name in names):
        flows, retries, dead_letters = follow_failures(log, buckets)
        findings = replace(findings, failures=flows, retries=retries, dead_letters=dead_letters)
    if trace_topic in names:
        findings = replace(findings, traced=follow_trace(log, buckets, trace_topic))
    else:
        missing.append(
            (
                "Latency to consumption and waiting messages over time, of push and pull consumers",
                f"The log holds no topic {trace_topic}: no client had message tracing switched on "
                "(enableMsgTrace), or the messages of that topic have expired.",
            )
        )
    if any(name.startswith(REVIVE_TOPIC_PREFIX) for name in names):
        findings = replace(findings, popped=follow_pops(log, buckets))
    else:
        missing.append(
            (
                "Lag over time of consumers that pop",
                "The log holds no topic rmq_sys_REVIVE_LOG_<cluster>: no consumer popped, or the "
                "checkpoints have expired.",
            )
        )
    missing.append(
        (
            "Committed offsets over time",
            "RocketMQ keeps only the latest ones (config/consumerOffset.json), so the lag is known only for now.",
        )
    )
    return findings
