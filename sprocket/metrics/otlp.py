"""Metrics in the data model of opentelemetry-sdk, for its exporters.

The SDK's instruments are not used: it has no histogram that is read when it is exported, and a call for each message
would take a third of the time of a send.  Importing this module needs the extra `metrics`.
Source of the scope's name: RocketMQ 5.3.3, `BrokerMetricsConstant.OPEN_TELEMETRY_METER_NAME`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from google.protobuf.json_format import MessageToJson
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sprocket.metrics.declared import Kind, Reading, Value
from sprocket.metrics.distribution import Distribution

_NO_RESOURCE: Final = Resource({})
Point = tuple[Mapping[str, str], Value]


class Growth:
    """What counters and histograms have grown since the last export (metricsInDelta)."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, frozenset[tuple[str, str]]], Value] = {}

    def of(self, reading: Reading) -> list[Point]:
        """Return the points with their growth.  A counter below its last value has begun again at 0."""
        points: list[Point] = []
        for labels, value in reading.points:
            key = (reading.name, frozenset(labels.items()))
            before, self._last[key] = self._last.get(key), value
            if isinstance(value, Distribution):
                is_same = isinstance(before, Distribution) and before.count <= value.count
                points.append((labels, value.minus(before) if is_same and isinstance(before, Distribution) else value))
            else:
                was = before if isinstance(before, float | int) and before <= value else 0
                points.append((labels, value - was))
        return points


class OtlpEncoder:
    """Builder of the data of one export after another; times are ns since 1970."""

    def __init__(self, scope: str, started_ns: int, *, in_delta: bool) -> None:
        self._scope = InstrumentationScope(scope)
        self._since_ns = started_ns
        self._growth = Growth() if in_delta else None

    def encode(self, readings: Iterable[Reading], now_ns: int) -> MetricsData:
        """Return the data; with `in_delta`, they hold what counters and histograms have grown since the last call."""
        metrics = [self._metric(reading, now_ns) for reading in readings if reading.points]
        if self._growth is not None:
            self._since_ns = now_ns
        scope = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(_NO_RESOURCE, [scope], "")])

    def _metric(self, reading: Reading, now_ns: int) -> Metric:
        since = self._since_ns
        if reading.kind is Kind.GAUGE:
            gauge = Gauge(_numbers(reading.points, None, now_ns))
            return Metric(reading.name, reading.says, reading.unit, gauge)
        points: Sequence[Point] = reading.points if self._growth is None else self._growth.of(reading)
        delta, cumulative = AggregationTemporality.DELTA, AggregationTemporality.CUMULATIVE
        temporality = cumulative if self._growth is None else delta
        if reading.kind is Kind.COUNTER:
            data = Sum(_numbers(points, since, now_ns), temporality, is_monotonic=True)
            return Metric(reading.name, reading.says, reading.unit, data)
        return Metric(reading.name, reading.says, reading.unit, Histogram(_boxes(points, since, now_ns), temporality))


def _numbers(points: Sequence[Point], since_ns: int | None, now_ns: int) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(dict(labels), since_ns, now_ns, value)  # type: ignore[arg-type] # None for gauges, as in the SDK
        for labels, value in points
        if not isinstance(value, Distribution)
    ]


def _boxes(points: Sequence[Point], since_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    return [
        HistogramDataPoint(
            dict(labels),
            since_ns,
            now_ns,
            value.count,
            value.total,
            value.counts,
            value.boundaries,
            min=0.0,
            max=0.0,
        )
        for labels, value in points
        if isinstance(value, Distribution)
    ]


class Collector:
    """A collector of OpenTelemetry, reached over gRPC.  The methods block: call them in a thread."""

    def __init__(self, target: str, headers: Mapping[str, str], timeout_ms: int) -> None:
        endpoint = target if target.startswith("http") else f"https://{target}"
        self._timeout_ms = timeout_ms
        self._exporter = OTLPMetricExporter(
            endpoint=endpoint,
            insecure=endpoint.startswith("http://"),
            headers=tuple((name.lower(), value) for name, value in headers.items()),
            timeout=timeout_ms / 1000,
        )

    def export(self, data: MetricsData) -> bool:
        """Send the data; return whether the collector took them."""
        return self._exporter.export(data, timeout_millis=self._timeout_ms) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown(timeout_millis=self._timeout_ms)


def as_json(data: MetricsData) -> str:
    """Return the data as JSON of OTLP on one line, as RocketMQ's LOG exporter writes them."""
    text: str = MessageToJson(encode_metrics(data).resource_metrics[0], indent=None)
    return text
