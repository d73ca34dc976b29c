"""Metrics of the broker as a whole: its permission, its tables, its connections, its store.

Source: RocketMQ 5.3.3, `BrokerMetricsManager`, `DefaultStoreMetricsManager`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from broker.core import BrokerCore
from broker.metrics.labels import is_system_group
from broker.monitoring.broker_figures import DiskSpace, disk_space
from sprocket.metrics.declared import Kind, Metric, Value, gauge, text
from sprocket.metrics.distribution import Labels
from sprocket.remoting.version_names import version_text

# RocketMQ's queues of requests.  Here requests wait in none: they are served in the turn of the loop that reads them.
_PROCESSORS: Final = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull", "transaction",
    "consumer_manager", "admin", "reply",
)  # fmt: skip
_MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
# Labels of the metrics of the store, `DefaultStoreMetricsConstant`.
STORE_LABELS: Final = ("storage_type", "storage_medium")
STORE_VALUES: Final = ("local", "disk")


def node_metrics(core: BrokerCore) -> list[Metric]:
    """Return the metrics of tables and connections."""
    config = core.config
    light = gauge("rocketmq_lmq_number", "light queues", lambda: core.store.light_queue_count)
    return [
        Metric(
            "rocketmq_processor_watermark", Kind.GAUGE, "requests that wait in a queue: 0, requests wait in none",
            lambda: [((name,), 0) for name in _PROCESSORS], ("processor",),
        ),
        gauge(
            "rocketmq_broker_permission", "4: read, 2: write, 6: both", lambda: int(config.broker.broker_permission)
        ),
        gauge("rocketmq_topic_number", "topics", lambda: len(core.topics.snapshot().topic_config_table)),
        gauge(
            "rocketmq_consumer_group_number", "subscription groups",
            lambda: len(core.groups.snapshot().subscription_group_table),
        ),
        *([light] if config.store.enable_lmq else []),
        Metric(
            "rocketmq_producer_connections", Kind.GAUGE, "connections of producers", lambda: _producers(core),
            ("language", "version", "protocol_type"),
        ),
        Metric(
            "rocketmq_consumer_connections", Kind.GAUGE, "connections of consumers", lambda: _consumers(core),
            ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        ),
    ]  # fmt: skip


def _producers(core: BrokerCore) -> Iterator[tuple[Labels, Value]]:
    counts = Counter(
        (member.language.lower(), version_text(member.version).lower())
        for members in core.producers.groups.values()
        for member in members
    )
    for (language, version), count in counts.items():
        yield (language, version, "remoting"), count


def _consumers(core: BrokerCore) -> Iterator[tuple[Labels, Value]]:
    for group in core.consumers.groups:
        mode = _MODES.get(group.consume_type or "", "")
        counts = Counter(
            (member.language.lower(), version_text(member.version).lower()) for member in group.members.values()
        )
        for (language, version), count in counts.items():
            yield (group.name, language, version, mode, "remoting", text(is_system_group(group.name))), count


def store_metrics(core: BrokerCore, space: DiskSpace = disk_space) -> list[Metric]:
    """Return the metrics of the store."""
    store, root = core.store, core.config.store.store_path_root_dir

    def of_store(name: str, says: str, read: Callable[[], float | None], unit: str) -> Metric:
        def values() -> list[tuple[Labels, Value]]:
            value = read()
            return [] if value is None else [(STORE_VALUES, value)]

        return Metric(name, Kind.GAUGE, says, values, STORE_LABELS, unit)

    def reserved() -> float | None:
        first_ms = store.first_store_time()
        return core.clock.wall_ms() - first_ms if first_ms > 0 else None

    def compactions() -> list[tuple[Labels, Value]]:
        return [(("ok",), store.compaction.finished), (("failed",), store.compaction.failed)]

    return [
        Metric(
            "sprocket_store_compactions_total", Kind.COUNTER, "compactions of queues of compacted topics that ended",
            compactions, ("result",),
        ),
        of_store(
            "sprocket_store_compacted_size", "bytes that compacted queues keep", lambda: store.compaction.size_bytes,
            "bytes",
        ),
        of_store("rocketmq_storage_size", "used bytes of the store's disk", partial(_used, space, root), "bytes"),
        of_store(
            "rocketmq_storage_flush_behind_bytes", "bytes of the CommitLog that are not flushed",
            lambda: store.wrote_offset - store.flushed_offset, "bytes",
        ),
        of_store("rocketmq_storage_dispatch_behind_bytes", "0: queues are written with the log", lambda: 0, "bytes"),
        of_store("rocketmq_storage_message_reserve_time", "age of the oldest message", reserved, "milliseconds"),
    ]  # fmt: skip


def _used(space: DiskSpace, root: Path) -> float | None:
    total, free = space(root)
    return total - free if total else None
