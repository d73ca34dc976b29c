"""All links of a configuration in one process: a server that starts and stops, with metrics."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from replicate.cluster import Cluster
from replicate.config import Config
from replicate.link import ReplicationLink
from replicate.protocol.copies import SourceQueue
from replicate.protocol.position import Checkpoint
from replicate.queue_copier import QueueCopier
from replicate.records import Record, queue_key
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, SprocketError
from sprocket.metrics.declared import Kind, Metric, Read
from sprocket.metrics.distribution import Labels
from sprocket.metrics.export import MetricsExport
from sprocket.metrics.registry import MetricRegistry

logger = logging.getLogger(__name__)

_QUEUE: Final = ("source", "target", "topic", "broker", "queue")


class Replication:
    """Replicator `owner`, a name that no other one has.  `fail` gets the error that ends it."""

    def __init__(
        self, config: Config, owner: str, clock: Clock, fail: Callable[[SprocketError], None] = lambda error: None
    ) -> None:
        self.clusters = {
            name: Cluster(name, each.client_settings(clock), clock) for name, each in config.clusters.items()
        }
        self.links = [
            ReplicationLink(
                each, self.clusters[each.source], self.clusters[each.target], owner, clock, config, self._read,
            )
            for each in config.links
        ]  # fmt: skip
        self._config = config
        self._fail = fail
        self._tasks: list[asyncio.Task[None]] = []
        registry = MetricRegistry(self.exported_metrics(), lambda: {"replicator": owner})
        self.export = MetricsExport(
            config.metrics(), registry.read, clock, host="127.0.0.1", scope="replication",
            page_keys=("the address", "metrics-port"),
        )  # fmt: skip

    def _read(self, queue: SourceQueue) -> list[Checkpoint]:
        """Return the checkpoints of the links that have read a queue, by this replicator or another one.

        Among three and more clusters those of a link that is not in the configuration do not count: it may be gone, and
        does not see what the queue has lost since.
        """
        records = [
            cluster.records.get(queue_key(queue), Record()).queue for name, cluster in self.clusters.items()
            if self._config.is_pair or self._config.link(queue.cluster, name) is not None
        ]  # fmt: skip
        copiers = [link.copiers[queue].checkpoint for link in self.links if queue in link.copiers]
        return [*copiers, *filter(None, records)]

    async def start(self) -> None:
        """Begin to replicate, also if the metrics' port is taken, as by another replicator.  Raises TlsUnusable."""
        try:
            await self.export.start()
        except ConfigError as error:
            logger.warning("event=metrics_not_exported reason=%r", str(error))
        for cluster in self.clusters.values():
            await cluster.start()
        for link in self.links:
            task = asyncio.get_running_loop().create_task(link.run())
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        logger.error("event=link_failed reason=%r", str(error), exc_info=error)
        self._fail(error if isinstance(error, SprocketError) else SprocketError(f"a link failed: {error!r}"))

    async def stop(self) -> None:
        """Stop copying, write the last checkpoints, and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links:
            try:
                await link.save()
                await link.lease.release()
            except SprocketError as error:
                logger.warning("event=checkpoint_failed link=%s reason=%r", link, str(error))
        for cluster in self.clusters.values():
            await cluster.close()
        await self.export.stop()

    # Metrics

    def exported_metrics(self) -> list[Metric]:
        """Return the metrics."""
        return [
            self._metric("copied_messages_total", Kind.COUNTER, "Messages that were copied.", lambda one: one.copied),
            self._metric("copied_bytes_total", Kind.COUNTER, "Bytes of their bodies.", lambda one: one.copied_bytes),
            self._metric(
                "left_out_messages_total", Kind.COUNTER, "Messages that are not for the target, as echoes.",
                lambda one: one.left_out,
            ),
            self._metric("lag_messages", Kind.GAUGE, "Messages that are not copied yet.", lambda one: one.lag),
            self._metric(
                "lag_seconds", Kind.GAUGE, "Age of the last copy while messages are missing.", lambda one: one.lag_s
            ),
            self._metric(
                "missed_messages", Kind.GAUGE, "Messages that expired before they were copied.", lambda one: one.missed
            ),
            self._metric("blocked", Kind.GAUGE, "1 if the queue stands still.", lambda one: float(bool(one.blocked))),
            Metric(
                "sprocket_replication_lease_held", Kind.GAUGE, "1 if this replicator copies the link.", self._leases,
                ("source", "target"),
            ),
        ]  # fmt: skip

    def _metric(self, name: str, kind: Kind, says: str, value: Callable[[QueueCopier], float]) -> Metric:
        return Metric(f"sprocket_replication_{name}", kind, says, self._of_queues(value), _QUEUE)

    def _of_queues(self, value: Callable[[QueueCopier], float]) -> Read:
        def read() -> Iterator[tuple[Labels, float]]:
            for link in self.links:
                for queue, copier in link.copiers.items():
                    place = (queue.topic, queue.broker_name, str(queue.queue_id))
                    yield (queue.cluster, link.target.name, *place), value(copier)

        return read

    def _leases(self) -> Iterator[tuple[Labels, float]]:
        for link in self.links:
            yield (link.source.name, link.target.name), float(link.lease.is_held)
