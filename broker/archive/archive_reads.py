"""The part of a broker that owns its reads from the archive: keys, metrics, and their end.

Source of the names: RocketMQ 5.3.3, `TieredStoreMetricsConstant`.
"""

from collections.abc import Callable
from functools import partial

from broker.service import Service
from sprocket.metrics.declared import Kind, Metric
from store.tier.reads.tiered_reads import TieredReads


class ArchiveReads(Service):
    """Service for `TieredReads`, which answers pulls, pops and queries."""

    def __init__(self, tier: TieredReads) -> None:
        self._tier = tier

    def configured(self, changed: dict[str, str]) -> None:
        self._tier.configure()

    def stop(self) -> None:
        self._tier.close()

    def exported_metrics(self) -> list[Metric]:
        """Return the metrics; without an archive they have no values."""
        tier, cache = self._tier, self._tier.cache

        def metric(name: str, says: str, read: Callable[[], int], *, kind: Kind = Kind.GAUGE, unit: str = "") -> Metric:
            return Metric(name, kind, says, lambda: [((), read())] if tier.is_on else [], unit=unit)

        def looks() -> int:
            return cache.hits + cache.misses

        counter, name = partial(metric, kind=Kind.COUNTER), "rocketmq_tiered_store_"
        return [
            counter(f"{name}messages_out_total", "messages that consumers got from the archive", lambda: tier.messages),
            counter(f"{name}read_ahead_cache_access_total", "looks for a block of the archive in memory", looks),
            counter(f"{name}read_ahead_cache_hit_total", "looks that found the block", lambda: cache.hits),
            metric(f"{name}read_ahead_cache_count", "blocks of the archive in memory", lambda: len(cache)),
            metric(
                f"{name}read_ahead_cache_bytes", "size of the blocks of the archive in memory",
                lambda: cache.size_bytes, unit="bytes",
            ),
            counter(
                "sprocket_tiered_store_failed_reads_total", "reads that were answered: try again",
                lambda: tier.failed_reads,
            ),
        ]  # fmt: skip
