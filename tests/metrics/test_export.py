"""Exports over real sockets: a page for Prometheus, a collector of OpenTelemetry, the log."""

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from sprocket.common.clock import SystemClock
from sprocket.common.errors import ConfigError
from sprocket.metrics import declared
from sprocket.metrics.declared import Kind, gauge
from sprocket.metrics.distribution import Distribution
from sprocket.metrics.export import MetricsExport
from sprocket.metrics.registry import MetricRegistry
from sprocket.metrics.settings import ExporterType, MetricsSettings, pairs
from tests.waiting import until

_PROM = MetricsSettings(metrics_exporter_type=ExporterType.PROM, metrics_prom_exporter_port=0)


class Counted:
    """A counter and a histogram that a test raises."""

    def __init__(self) -> None:
        self.count = 0
        self.sizes = Distribution((10, 100))

    def raise_by(self, count: int) -> None:
        self.count += count
        self.sizes.add(5, count)

    def registry(self) -> MetricRegistry:
        return MetricRegistry(
            [
                declared.Metric("sent_total", Kind.COUNTER, "sent", lambda: [(("T",), self.count)], ("topic",)),
                declared.Metric("sizes", Kind.HISTOGRAM, "sizes", lambda: [((), self.sizes)], unit="bytes"),
                gauge("level", "level", lambda: 7),
            ],
            lambda: {"cluster": "C"},
        )


@asynccontextmanager
async def exporting(settings: MetricsSettings, registry: MetricRegistry) -> AsyncIterator[MetricsExport]:
    export = MetricsExport(settings, registry.read, SystemClock(), host="127.0.0.1", scope="meter")
    await export.bind()
    await export.start()
    try:
        yield export
    finally:
        await export.stop()


async def ask(port: int | None, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


# Prometheus


async def test_page() -> None:
    counted = Counted()
    counted.raise_by(3)
    async with exporting(_PROM, counted.registry()) as export:
        answer = await ask(export.port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b'\nsent_total{cluster="C",topic="T"} 3.0\n' in answer
        zipped = await ask(export.port, b"GET / HTTP/1.1\r\nAccept-Encoding: br, gzip;q=1\r\n\r\n")
        assert b"level" in gzip.decompress(zipped.partition(b"\r\n\r\n")[2])
        assert (await ask(export.port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
        assert b"200 OK" in await ask(export.port, b"GET /-/healthy HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 20_000, b""),
    ],
)
async def test_bad_requests_end_their_connection(request_head: bytes, status: bytes) -> None:
    async with exporting(_PROM, Counted().registry()) as export:
        assert (await ask(export.port, request_head)).partition(b"\r\n")[0][9:12] == status
        assert b"200 OK" in await ask(export.port, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_silent_connections_keep_nobody_out() -> None:
    async with exporting(_PROM, Counted().registry()) as export:
        silent = [await asyncio.open_connection("127.0.0.1", export.port) for _ in range(200)]
        assert b"200 OK" in await ask(export.port, b"GET /metrics HTTP/1.1\r\n\r\n")
        for _, writer in silent:
            writer.close()


async def test_metric_that_cannot_be_read() -> None:
    def fail() -> int:
        raise ValueError("no such file")

    async with exporting(_PROM, MetricRegistry([gauge("m", "says", fail)], dict)) as export:
        assert b" 500 " in await ask(export.port, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_scrapes_at_the_same_time_get_one_page() -> None:
    made: list[int] = []
    is_ready = asyncio.Event()

    async def prepare() -> None:
        made.append(len(made))
        await is_ready.wait()

    def level() -> int:
        if len(made) == 2:
            raise ValueError("no such file")
        return len(made)

    registry = MetricRegistry([gauge("level", "level", level)], dict, prepares=[prepare])
    async with exporting(_PROM, registry) as export:

        async def scraped() -> list[bytes]:
            asked = [asyncio.create_task(ask(export.port, b"GET / HTTP/1.1\r\n\r\n")) for _ in range(10)]
            gone = asyncio.create_task(export.page())
            await until(lambda: made and not is_ready.is_set())
            gone.cancel()  # harms no other
            await asyncio.sleep(0.05)
            is_ready.set()
            found = [await one for one in asked]
            is_ready.clear()
            return found

        assert all(b"\nlevel{} 1.0\n" in one for one in await scraped())
        assert made == [0]
        made.append(1)
        is_ready.set()
        assert b"\nlevel{} 3.0\n" in await ask(export.port, b"GET / HTTP/1.1\r\n\r\n")
        del made[1:]
        is_ready.clear()
        assert all(b" 500 " in one for one in await scraped())
        is_ready.set()
        assert b"\nlevel{} 3.0\n" in await ask(export.port, b"GET / HTTP/1.1\r\n\r\n")


async def test_port_that_is_taken() -> None:
    async with exporting(_PROM, Counted().registry()) as export:
        second = replace(_PROM, metrics_prom_exporter_port=export.port or 0)
        with pytest.raises(ConfigError, match="metricsPromExporterPort"):
            await MetricsExport(second, Counted().registry().read, SystemClock(), host="127.0.0.1", scope="m").bind()


# OpenTelemetry


class FakeCollector(MetricsServiceServicer):  # type: ignore[misc] # generated, without types
    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: dict[str, str] = {}

    async def Export(  # noqa: N802 # the name of the service's method
        self, request: ExportMetricsServiceRequest, context: Any
    ) -> ExportMetricsServiceResponse:
        self.requests.append(request)
        self.headers = dict(context.invocation_metadata())
        return ExportMetricsServiceResponse()

    def metrics(self, number: int) -> dict[str, Metric]:
        (resource,) = self.requests[number].resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "meter"
        return {metric.name: metric for metric in scope.metrics}


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[FakeCollector, int]]:
    server, service = grpc.aio.server(), FakeCollector()
    add_MetricsServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield service, port
    finally:
        await server.stop(None)


def pushing(port: int, *, in_delta: bool) -> MetricsSettings:
    return MetricsSettings(
        metrics_exporter_type=ExporterType.OTLP_GRPC,
        metrics_grpc_exporter_target=f"http://127.0.0.1:{port}",
        metrics_grpc_exporter_header="Api-Key:secret",
        metric_grpc_exporter_interval_in_mills=100,
        metrics_in_delta=in_delta,
    )


@pytest.mark.parametrize("in_delta", [False, True])
async def test_push_to_a_collector(in_delta: bool) -> None:
    counted = Counted()
    async with collector() as (service, port):
        async with exporting(pushing(port, in_delta=in_delta), counted.registry()):
            counted.raise_by(3)
            await until(lambda: service.requests)
            first = len(service.requests)
            counted.raise_by(4)
            await until(lambda: len(service.requests) > first)
        # The last export is at the stop.
        assert service.headers["api-key"] == "secret"
        sums = [service.metrics(n)["sent_total"].sum for n in range(len(service.requests))]
        sizes = [service.metrics(n)["sizes"].histogram for n in range(len(service.requests))]
        level = service.metrics(-1)["level"].gauge
    values = [int(point.data_points[0].as_int or point.data_points[0].as_double) for point in sums]
    counts = [point.data_points[0].count for point in sizes]
    assert level.data_points[0].as_int == 7 or level.data_points[0].as_double == 7
    assert {label.key: label.value.string_value for label in sums[0].data_points[0].attributes} == {
        "cluster": "C", "topic": "T",
    }  # fmt: skip
    assert sums[0].is_monotonic
    if in_delta:
        assert sum(values) == sum(counts) == 7
        assert sums[0].aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        starts = [point.data_points[0].start_time_unix_nano for point in sums]
        assert starts[1:] == [point.data_points[0].time_unix_nano for point in sums[:-1]]
    else:
        assert values[-1] == counts[-1] == 7
        assert sums[0].aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert list(sizes[-1].data_points[0].explicit_bounds) == [10, 100]


async def test_collector_that_is_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with collector() as (_, port):
        pass
    settings = replace(pushing(port, in_delta=False), metric_grpc_exporter_time_out_in_mills=200)
    with caplog.at_level(logging.INFO, logger="sprocket.metrics.export"):
        async with exporting(settings, Counted().registry()):
            await until(lambda: "metrics_not_exported" in caplog.text)
            await asyncio.sleep(0.6)
    said = [record for record in caplog.records if "metrics_not_exported" in record.getMessage()]
    assert len(said) == 1


async def test_log(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    counted.raise_by(2)
    settings = MetricsSettings(
        metrics_exporter_type=ExporterType.LOG, metric_logging_exporter_interval_in_mills=100, metrics_in_delta=True
    )
    with caplog.at_level(logging.INFO, logger="sprocket.metrics.export"):
        async with exporting(settings, counted.registry()):
            await until(lambda: "event=metrics " in caplog.text)
    line = next(record.getMessage() for record in caplog.records if "event=metrics " in record.getMessage())
    data = json.loads(line.partition("data=")[2])
    names = [metric["name"] for metric in data["scopeMetrics"][0]["metrics"]]
    assert names == ["sent_total", "sizes", "level"]


# Settings


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"metrics_exporter_type": ExporterType.OTLP_GRPC}, "metricsGrpcExporterTarget"),
        ({"metrics_label": "no colon"}, "metricsLabel"),
        ({"metrics_grpc_exporter_header": "a:b:c"}, "metricsGrpcExporterHeader"),
    ],
)
def test_wrong_settings(changes: dict[str, Any], named: str) -> None:
    export = MetricsExport(
        replace(MetricsSettings(), **changes), Counted().registry().read, SystemClock(), host="", scope="m"
    )
    with pytest.raises(ConfigError, match=named):
        export.check()


def test_pairs() -> None:
    assert pairs("metricsLabel", " a:1, b: two ,") == {"a": "1", "b": "two"}
