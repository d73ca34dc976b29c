"""Metrics of the archive: RocketMQ's names where it has them.

Source: RocketMQ 5.3.3, `TieredStoreMetricsConstant`, `TieredStoreMetricsManager`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.archive.archived_log import ArchivedLog
from sprocket.common.clock import Clock
from sprocket.metrics.declared import Kind, Metric, Value
from sprocket.metrics.distribution import Distributions, Labels
from store.tier.group_store import GroupStore
from store.tier.manifest import Manifest

# S3's list prices of the standard class, dollars for a million requests: an estimate, not a bill.
_DOLLARS: Final = {"write": 5.0, "read": 0.4, "delete": 0.0}
_OWN: Final = "sprocket_tiered_store_"
_RPC_LABELS: Final = ("operation", "success")


@dataclass
class ArchiveFigures:
    """What the service knows now.  `trouble` is the class of the error for which nothing is uploaded; else empty."""

    uploaded_end: int | None = None
    stored_bytes: int = 0
    uploaded_messages: int = 0
    trouble: str = ""

    def note(self, manifest: Manifest, uploaded_messages: int) -> None:
        """Take the figures of a manifest that was read back."""
        self.uploaded_end, self.uploaded_messages = manifest.uploaded_end, uploaded_messages
        self.stored_bytes = sum(entry.size_bytes for entry in manifest.segments)

    def stopped(self, trouble: str) -> None:
        """Take the class of the error for which nothing is uploaded; empty when uploads go on."""
        self.trouble = trouble


def archive_metrics(
    archive: GroupStore | None, figures: ArchiveFigures, clock: Clock, log: ArchivedLog
) -> list[Metric]:
    """Return the metrics; without an archive they have no values."""

    def waiting() -> tuple[int, int]:
        """Return the bytes that are not archived, and the age of the oldest of these messages, ms."""
        view = log.view()
        end = max(figures.uploaded_end or 0, view.min_offset)
        stored_ms = log.store_time_at(end)
        return max(0, view.safe_offset - end), 0 if stored_ms < 0 else max(0, clock.wall_ms() - stored_ms)

    def gauge(name: str, says: str, read: Callable[[], int], unit: str) -> Metric:
        return Metric(name, Kind.GAUGE, says, lambda: [] if archive is None else [((), read())], unit=unit)

    return [
        *_request_metrics(archive),
        Metric(
            "rocketmq_tiered_store_messages_dispatch_total", Kind.COUNTER, "messages that were archived",
            lambda: [] if archive is None else [((), figures.uploaded_messages)],
        ),
        gauge(
            "rocketmq_tiered_store_dispatch_latency", "age of the oldest message that is not archived",
            lambda: waiting()[1], "milliseconds",
        ),
        gauge(
            f"{_OWN}upload_lag", "confirmed messages that are on the local disks alone", lambda: waiting()[0], "bytes"
        ),
        gauge(f"{_OWN}stored", "size of the archived segments, compressed", lambda: figures.stored_bytes, "bytes"),
        Metric(
            f"{_OWN}stopped", Kind.GAUGE, "1 while nothing is archived because of an error of this kind",
            lambda: [((figures.trouble,), 1)] if figures.trouble else [], ("kind",),
        ),
    ]  # fmt: skip


def _request_metrics(archive: GroupStore | None) -> list[Metric]:
    """Return the metrics of the requests to the object store."""

    def histogram(kind: str, says: str, unit: str, of: Distributions | None) -> Metric:
        name = f"rocketmq_tiered_store_provider_{kind}"
        return Metric(name, Kind.HISTOGRAM, says, lambda: [] if of is None else of.read(), _RPC_LABELS, unit)

    def requests() -> list[tuple[Labels, Value]]:
        return [] if archive is None else [((kind,), archive.requests[kind]) for kind in _DOLLARS]

    def cost() -> list[tuple[Labels, Value]]:
        return (
            [] if archive is None else [((), sum(archive.requests[kind] * _DOLLARS[kind] for kind in _DOLLARS) / 1e6)]
        )

    latency, sent, received = (
        (None, None, None) if archive is None else (archive.latency_ms, archive.uploaded, archive.downloaded)
    )
    return [
        histogram("rpc_latency", "time of requests to the object store", "milliseconds", latency),
        histogram("upload_bytes", "size of uploads", "bytes", sent),
        histogram("download_bytes", "size of downloads", "bytes", received),
        Metric(
            f"{_OWN}requests_total", Kind.COUNTER, "requests to the object store, as they are billed", requests,
            ("class",),
        ),
        Metric(
            f"{_OWN}request_cost", Kind.COUNTER, "estimated price of the requests, by S3's list prices", cost,
            unit="dollars",
        ),
    ]  # fmt: skip
