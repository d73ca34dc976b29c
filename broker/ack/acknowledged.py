"""Counts of acknowledged messages: how many are in flight, and the metrics."""

from collections.abc import Iterable

from broker.pop.inflight import InflightMessages
from broker.pop.pop_counters import PopCounters

# Topic, group, queue id, time of the pop in ms, acknowledged messages.
AckedPop = tuple[str, str, int, int, int]


def count_acknowledged(pops: Iterable[AckedPop], inflight: InflightMessages, counters: PopCounters) -> None:
    """Count acknowledged messages, after their records are appended: this may wake pops, which append too."""
    for topic, group, queue_id, pop_time_ms, messages in pops:
        counters.acknowledged(topic, group, messages)
        inflight.done(topic, group, queue_id, pop_time_ms, messages)
