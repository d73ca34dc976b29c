"""Export of a server's metrics: a page for Prometheus, or periodic exports to a collector or the log.

Source of the ways: RocketMQ 5.3.3, `BrokerMetricsManager`, `ControllerMetricsManager`, `ProxyMetricsManager`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError
from sprocket.common.extras import install
from sprocket.common.logs.line_format import WHOLE
from sprocket.common.next_turn import in_turns
from sprocket.metrics.declared import Reading
from sprocket.metrics.http_page import HttpPage, page_host
from sprocket.metrics.prometheus_text import CONTENT_TYPE, rendered
from sprocket.metrics.settings import ExporterType, MetricsSettings, pairs

if TYPE_CHECKING:
    from sprocket.metrics.otlp import Collector, OtlpEncoder

logger = logging.getLogger(__name__)

_PERIODIC: Final = (ExporterType.OTLP_GRPC, ExporterType.LOG)


class MetricsExport:
    """Exporter of one server, as `settings` say; with DISABLE all methods do nothing.

    `read` yields the values of each metric, see `MetricRegistry.read`.  `host` is the server's address, for
    an empty metricsPromExporterHost.  `scope` is the name of the meter.  `page_keys` are the settings that an error
    names when the page's address cannot be bound.
    """

    def __init__(
        self,
        settings: MetricsSettings,
        read: Callable[[], AsyncIterator[Reading]],
        clock: Clock,
        *,
        host: str,
        scope: str,
        page_keys: tuple[str, str] = ("metricsPromExporterHost", "metricsPromExporterPort"),
    ) -> None:
        self._settings = settings
        self._read = read
        self._clock = clock
        self._host = page_host(settings.metrics_prom_exporter_host, host)
        self._scope = scope
        self._page_keys = page_keys
        self._page: HttpPage | None = None
        self._making: asyncio.Task[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._encoder: OtlpEncoder | None = None
        self._collector: Collector | None = None
        self._failures = 0

    @property
    def port(self) -> int | None:
        """Port of the page for Prometheus, once bound; None without a page."""
        return None if self._page is None else self._page.port

    def check(self) -> None:
        """Raise ConfigError for settings with which nothing can be exported."""
        settings = self._settings
        pairs("metricsLabel", settings.metrics_label)
        pairs("metricsGrpcExporterHeader", settings.metrics_grpc_exporter_header)
        kind = settings.metrics_exporter_type
        if kind is ExporterType.OTLP_GRPC and not settings.metrics_grpc_exporter_target.strip():
            raise ConfigError(
                "metricsExporterType = OTLP_GRPC needs a collector: set metricsGrpcExporterTarget to http://HOST:4317"
            )
        if kind in _PERIODIC:
            try:
                import sprocket.metrics.otlp  # noqa: F401
            except ImportError as error:
                raise ConfigError(
                    f"metricsExporterType = {kind} needs packages that are not installed ({error}): "
                    f"run `{install('metrics')}`, or use PROM, which needs none"
                ) from None

    async def bind(self) -> None:
        """Bind the port for Prometheus.  Raises ConfigError, also as `check` does."""
        self.check()
        settings = self._settings
        if settings.metrics_exporter_type is ExporterType.PROM:
            page = HttpPage(self.page, CONTENT_TYPE, self._host, settings.metrics_prom_exporter_port, self._page_keys)
            await page.bind()
            self._page = page

    async def page(self) -> bytes:
        """Return the page for Prometheus.  Scrapes that come while it is made get the same one."""
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    async def _make(self) -> bytes:
        return b"".join([await in_turns(rendered(reading)) async for reading in self._read()])

    def _made(self, making: asyncio.Task[bytes]) -> None:
        self._making = None
        if not making.cancelled():
            making.exception()  # the scrapes have it, unless their peers are gone

    async def start(self) -> None:
        """Start to export; binds first if `bind` was not called.  Raises ConfigError."""
        settings = self._settings
        if self._page is None:
            await self.bind()
        if self._page is not None:
            await self._page.start()
        elif settings.metrics_exporter_type in _PERIODIC:
            from sprocket.metrics.otlp import Collector, OtlpEncoder

            self._encoder = OtlpEncoder(self._scope, self._now_ns(), in_delta=settings.metrics_in_delta)
            period_ms = settings.metric_logging_exporter_interval_in_mills
            if settings.metrics_exporter_type is ExporterType.OTLP_GRPC:
                period_ms = settings.metric_grpc_exporter_interval_in_mills
                headers = pairs("metricsGrpcExporterHeader", settings.metrics_grpc_exporter_header)
                self._collector = Collector(
                    settings.metrics_grpc_exporter_target.strip(),
                    headers,
                    settings.metric_grpc_exporter_time_out_in_mills,
                )
            self._task = asyncio.get_running_loop().create_task(self._export_forever(period_ms / 1000))

    async def stop(self) -> None:
        """Export once more, if exports are periodic, and stop."""
        if self._page is not None:
            self._page.close()
        if self._making is not None:
            self._making.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._export()
        collector, self._collector = self._collector, None
        if collector is not None:
            await asyncio.to_thread(collector.close)

    async def _export_forever(self, period_s: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period_s):
                    await loop.create_future()
            await self._export()

    async def _export(self) -> None:
        assert self._encoder is not None
        try:
            readings = [reading async for reading in self._read()]
            data = await asyncio.to_thread(self._encoder.encode, readings, self._now_ns())
            if self._collector is None:
                from sprocket.metrics.otlp import as_json

                logger.info("event=metrics data=%s", await asyncio.to_thread(as_json, data), extra={WHOLE: True})
                return
            is_taken = await asyncio.to_thread(self._collector.export, data)
        except Exception as error:
            logger.error("event=metrics_not_encoded", exc_info=error)
            return
        if is_taken != (self._failures == 0):
            # The first failure and the first success after it; the exporter itself logs the cause.
            target = self._settings.metrics_grpc_exporter_target
            if is_taken:
                logger.info("event=metrics_exported_again target=%s", target)
            else:
                logger.warning("event=metrics_not_exported target=%s", target)
        self._failures = 0 if is_taken else self._failures + 1

    def _now_ns(self) -> int:
        return self._clock.wall_ms() * 1_000_000


def is_exporting(settings: MetricsSettings) -> bool:
    """Return whether a server with these settings exports anything."""
    return settings.metrics_exporter_type is not ExporterType.DISABLE


def server_labels(settings: MetricsSettings, own: dict[str, str]) -> dict[str, str]:
    """Return the labels that all metrics of a server have: those of metricsLabel, of metricsInDelta, and its `own`."""
    labels = pairs("metricsLabel", settings.metrics_label)
    if settings.metrics_in_delta:
        labels["aggregation"] = "delta"
    return labels | own
