"""Metrics of the timer wheel.

Source of names, labels and bounds: RocketMQ 5.3.3, `DefaultStoreMetricsManager`, `TimerMetrics`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.core import BrokerCore
from broker.monitoring.node_metrics import STORE_LABELS, STORE_VALUES
from broker.timer.timer_metrics import TimerMetrics
from sprocket.metrics.declared import Kind, Metric, Value
from sprocket.metrics.distribution import Distributions, Labels
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.timer.timer_message_store import TimerMessageStore

# Ends of the periods of the snapshot, seconds from now.
_BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
_TOPIC: Final = ("topic", *STORE_LABELS)


def wheel_metrics(
    core: BrokerCore, timer: TimerMessageStore, counts: TimerMetrics, delays: Distributions
) -> list[Metric]:
    """Return the metrics; `delays` are those that senders asked for, by topic."""

    def one(name: str, says: str, read: Callable[[], int], unit: str = "") -> Metric:
        return Metric(name, Kind.GAUGE, says, lambda: [(STORE_VALUES, read())], STORE_LABELS, unit)

    def by_topic(name: str, says: str, kind: Kind, read: Callable[[], Mapping[str, int]]) -> Metric:
        return Metric(
            name, kind, says, lambda: [((topic, *STORE_VALUES), count) for topic, count in read().items()], _TOPIC
        )

    def enqueue_latency() -> int:
        if not timer.enqueue_behind:
            return 0
        stored_ms = core.store.store_time(TIMER_TOPIC, 0, timer.queue_offset)
        return max(0, core.clock.wall_ms() - stored_ms) if stored_ms > 0 else 0

    return [
        one("rocketmq_timer_enqueue_lag", "messages that have yet to enter the wheel", lambda: timer.enqueue_behind),
        one(
            "rocketmq_timer_enqueue_latency", "age of the oldest message that has yet to enter the wheel",
            enqueue_latency, "milliseconds",
        ),
        one("rocketmq_timer_dequeue_lag", "messages that wait in the wheel", lambda: timer.waiting),
        one(
            "rocketmq_timer_dequeue_latency", "how late the wheel delivers", lambda: timer.dequeue_behind_ms,
            "milliseconds",
        ),
        by_topic(
            "rocketmq_timing_messages", "messages that wait for their time", Kind.GAUGE,
            lambda: {topic: max(0, metric.count) for topic, metric in counts.by_topic.items()},
        ),
        by_topic(
            "rocketmq_timer_enqueue_total", "messages that entered the wheel", Kind.COUNTER, lambda: counts.entered
        ),
        by_topic("rocketmq_timer_dequeue_total", "messages that left the wheel", Kind.COUNTER, lambda: counts.left),
        Metric(
            "rocketmq_timer_message_snapshot", Kind.GAUGE,
            "messages that are due within the next seconds, after the bound before", lambda: _snapshot(core, timer),
            ("timer_bound_s", *STORE_LABELS),
        ),
        Metric(
            "rocketmq_delay_message_latency", Kind.HISTOGRAM, "delays that senders asked for",
            lambda: [((*labels, *STORE_VALUES), value) for labels, value in delays.read()], _TOPIC, "seconds",
        ),
    ]  # fmt: skip


def _snapshot(core: BrokerCore, timer: TimerMessageStore) -> Iterable[tuple[Labels, Value]]:
    now_ms = core.clock.wall_ms()
    begin_ms = now_ms
    for bound_s in _BOUNDS_S:
        end_ms = now_ms + bound_s * 1000
        yield (str(bound_s), *STORE_VALUES), timer.count_between(begin_ms, end_ms)
        begin_ms = end_ms
