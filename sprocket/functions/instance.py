"""One instance: the process that runs the functions of a package, reports what it does, and obeys limits.

An edge file: it sets limits of its own process.
"""

import asyncio
import contextlib
import faulthandler
import os
import resource
import signal
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from sprocket.client.connect import connect
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.errors import ClientError
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.functions.declaration import Function
from sprocket.functions.deployments import Registry, Status
from sprocket.functions.host import FunctionHost
from sprocket.functions.runner import COUNTERS
from sprocket.metrics.declared import Kind, Metric
from sprocket.metrics.export import MetricsExport
from sprocket.metrics.registry import MetricRegistry
from sprocket.metrics.settings import ExporterType, MetricsSettings

_REPORT_S: Final = 5.0
_BLOCKED_LIMIT_S: Final = 60


def limit(memory_mb: int, cpus: int, index: int) -> None:
    """Limit this process: its address space, and the processors that it may use; 0 is no limit."""
    if memory_mb:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    if cpus and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        first = index * cpus
        os.sched_setaffinity(0, {allowed[(first + number) % len(allowed)] for number in range(cpus)})


class InstanceArguments(msgspec.Struct, frozen=True):
    """Arguments of the process of one instance."""

    deployment: str
    code: str
    module: str
    version: int
    machine: str
    index: int
    memory_mb: int
    cpus: int
    metrics_port: int


class Instance:
    """Runner of `functions` from `start` to `stop`; `failed` gets an error after which it cannot go on."""

    def __init__(
        self,
        functions: Sequence[Function],
        settings: ClientSettings,
        status: Status,
        clock: Clock,
        failed: Callable[[SprocketError], None],
        metrics_port: int = 0,
    ) -> None:
        """`status` has what all reports of this instance have in common.  `metrics_port` 0 serves none."""
        self._status = status
        self._clock = clock
        self._connection = connect(client=settings)
        self._hosts = [FunctionHost(one, settings, failed, status.key) for one in functions]
        self._started: list[FunctionHost] = []
        registry = MetricRegistry(self.exported_metrics(), lambda: {"function": status.deployment})
        kind = ExporterType.PROM if metrics_port else ExporterType.DISABLE
        exported = MetricsSettings(metrics_exporter_type=kind, metrics_prom_exporter_port=metrics_port)
        self._export = MetricsExport(exported, registry.read, clock, host="127.0.0.1", scope="sprocket.functions")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take part in the groups of all functions.  Raises ClientError, and ConfigError if the port is taken."""
        self._tasks.append(asyncio.create_task(end_when_blocked(_BLOCKED_LIMIT_S)))
        await self._export.bind()
        await self._export.start()
        await self._connection.start()
        for host in self._hosts:
            await host.start()
            self._started.append(host)
        self._tasks.append(asyncio.create_task(self._report()))

    async def stop(self) -> None:
        """End after the inputs in work."""
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*(host.close() for host in self._started))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._export.stop()
        await self._connection.close()

    async def _report(self) -> None:
        registry = Registry(self._connection)
        while True:
            status = self._status
            status.at_ms, status.partitions = self._clock.wall_ms(), sum(host.partitions for host in self._hosts)
            status.counts = self.counts()
            status.error = next((host.counts.last_error for host in self._hosts if host.counts.last_error), "")
            # The next report has it all.  Brokers that are down are in the log anyway.
            with contextlib.suppress(ClientError):
                await registry.report(status)
            await asyncio.sleep(_REPORT_S)

    def counts(self) -> dict[str, int]:
        """Return the sums of all functions by name."""
        return {name: sum(host.counts[name] for host in self._hosts) for name in COUNTERS}

    def exported_metrics(self) -> list[Metric]:
        """The metrics of the functions, by group."""

        def metric(name: str, kind: Kind, says: str, value: Callable[[FunctionHost], int]) -> Metric:
            def read() -> list[tuple[tuple[str, ...], float]]:
                return [((host.function.group,), float(value(host))) for host in self._hosts]

            return Metric(f"sprocket_function_{name}", kind, says, read, ("consumer_group",))

        def counter(name: str, says: str) -> Metric:
            return metric(name, Kind.COUNTER, says, lambda host: host.counts[name])

        partitions = metric("partitions", Kind.GAUGE, "Partitions that this instance runs.", attrgetter("partitions"))
        return [partitions, *(counter(name, says) for name, says in COUNTERS.items())]


async def end_when_blocked(limit_s: int) -> None:
    """Have the system end this process if a handler blocks the event loop for `limit_s`: it is started again.

    Before that the log gets the line at which the handler is.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        while True:
            faulthandler.dump_traceback_later(limit_s * 0.9)
            signal.alarm(limit_s)
            await asyncio.sleep(limit_s / 4)
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
