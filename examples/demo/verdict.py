"""Checks of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from examples.demo.analysis import Findings
from examples.demo.consuming import Received
from examples.demo.sending import Sent
from examples.demo.settings import GROUP, TOPIC
from spark.files.consume_queue import open_queues
from sprocket.remoting.codec import fastjson


@dataclass(frozen=True)
class Check:
    """One statement, what was found, and whether it holds."""

    what: str
    found: str
    holds: bool


@dataclass(frozen=True)
class CommittedOffset:
    """Committed offset of the group in one queue, and the end of the queue."""

    committed: int
    end: int


class _OffsetFile(msgspec.Struct):
    """``config/consumerOffset.json``.  Source: RocketMQ 5.3.3, `ConsumerOffsetManager`."""

    offset_table: dict[str, dict[int, int]] = msgspec.field(name="offsetTable", default_factory=dict)


def committed_offsets(stores: Sequence[Path]) -> list[CommittedOffset]:
    """Return the group's offsets of every queue with messages, from the brokers' files."""
    offsets: list[CommittedOffset] = []
    for store in stores:
        content = fastjson.loads((store / "config" / "consumerOffset.json").read_bytes(), _OffsetFile)
        committed = content.offset_table.get(f"{TOPIC}@{GROUP}", {})
        queues = open_queues(store, TOPIC)
        offsets += [CommittedOffset(committed.get(queue.queue_id, 0), queue.end) for queue in queues]
    return offsets


def checks_of(
    flights: int, sent: Sent, received: Received, findings: Findings, offsets: Sequence[CommittedOffset]
) -> list[Check]:
    """Return every check of the demo, in the order of the report."""
    counts = findings.counts
    by_broker = ", ".join(f"{count:,} in {name}" for name, count in findings.records_by_broker.items())
    acknowledged = len(sent.acknowledged)
    again = counts.received - counts.distinct_received
    copies = counts.records - counts.distinct_in_log
    lag = sum(offset.end - offset.committed for offset in offsets)
    lost = counts.acknowledged_not_in_log
    unread = counts.in_log_not_received
    return [
        Check(
            "Every flight was acknowledged",
            f"{acknowledged:,} of {flights:,}",
            acknowledged == flights and not sent.not_ok,
        ),
        Check(
            "The logs hold every acknowledged flight",
            f"{counts.distinct_in_log:,} distinct, {lost:,} missing ({by_broker})",
            counts.distinct_in_log == acknowledged and not lost,
        ),
        Check(
            "Consumers received every flight of the logs",
            f"{counts.distinct_received:,} distinct, {unread:,} missing",
            counts.distinct_received == acknowledged and not unread,
        ),
        Check(
            "The logs and the consumers have no message that was not sent",
            f"{counts.in_log_not_acknowledged + counts.received_not_in_log:,} found",
            not counts.in_log_not_acknowledged and not counts.received_not_in_log,
        ),
        Check(
            "The driver and Spark count the same received messages",
            f"{received.total:,} and {counts.received:,}",
            received.total == counts.received and len(received.keys) == counts.distinct_received,
        ),
        Check(
            "Every message that was stored twice was received twice",
            f"{copies:,} second copies; {again:,} repeated deliveries, of copies or after the crash",
            again >= copies,
        ),
        Check(
            "The group committed every queue to its end",
            f"{sum(offset.end == offset.committed for offset in offsets)} of {len(offsets)} queues, lag {lag:,}",
            bool(offsets) and not lag,
        ),
        Check(
            "The killed broker accepted sends again",
            f"after {sent.recovery_s:.1f} s" if sent.recovery_s is not None else "it did not",
            sent.recovery_s is not None,
        ),
    ]
