"""Metrics of pop and of redelivery.

Source of names, labels and boundaries: RocketMQ 5.3.3, `PopMetricsManager`.  Records that the store refuses are not
counted, so `put_status` is always PUT_OK.
"""

from collections.abc import Iterator

from broker.pop.revive.revive_service import ReviveService
from broker.processor.pop.pop_service import PopService
from sprocket.metrics.declared import Kind, Metric, Value, gauge
from sprocket.metrics.distribution import Labels

_PUT_OK = "PUT_OK"


def pop_metrics(pop: PopService, revive: ReviveService) -> list[Metric]:
    """Return the metrics."""
    count = Kind.COUNTER
    return [
        Metric(
            "rocketmq_pop_buffer_scan_time_consume", Kind.HISTOGRAM, "time to write pops that leave the buffer",
            pop.buffer.scans.read, (), "milliseconds",
        ),
        Metric(
            "rocketmq_pop_revive_in_message_total", count, "records for the revive topic",
            lambda: [((group, topic, kind, _PUT_OK), made) for (group, topic, kind), made in pop.log.made.items()],
            ("consumer_group", "topic", "revive_message_type", "put_status"),
        ),
        Metric(
            "rocketmq_pop_revive_out_message_total", count, "records read from the revive topic",
            lambda: _read(revive), ("consumer_group", "topic", "queue_id", "revive_message_type"),
        ),
        Metric(
            "rocketmq_pop_revive_retry_messages_total", count, "messages stored in retry topics",
            lambda: _retried(revive), ("consumer_group", "topic", "put_status"),
        ),
        gauge("rocketmq_pop_offset_buffer_size", "pops whose offsets are not committed", lambda: len(pop.offsets)),
        gauge("rocketmq_pop_checkpoint_buffer_size", "pops in the buffer", lambda: len(pop.buffer)),
        Metric(
            "rocketmq_pop_revive_lag", Kind.GAUGE, "records that a revive queue has yet to process",
            lambda: [((str(queue.queue_id),), queue.behind_messages) for queue in revive.queues], ("queue_id",),
            "milliseconds",  # RocketMQ's unit, although it is a number of records
        ),
        Metric(
            "rocketmq_pop_revive_latency", Kind.GAUGE, "age of the first record that a revive queue has yet to process",
            lambda: [((str(queue.queue_id),), queue.behind_ms) for queue in revive.queues], ("queue_id",),
            "milliseconds",
        ),
    ]  # fmt: skip


def _read(revive: ReviveService) -> Iterator[tuple[Labels, Value]]:
    for queue in revive.queues:
        for (group, topic, kind), count in queue.figures.read.items():
            yield (group, topic, str(queue.queue_id), kind), count


def _retried(revive: ReviveService) -> Iterator[tuple[Labels, Value]]:
    sums: dict[tuple[str, str], int] = {}
    for queue in revive.queues:
        for key, count in queue.figures.retried_by.items():
            sums[key] = sums.get(key, 0) + count
    for (group, topic), count in sums.items():
        yield (group, topic, _PUT_OK), count
