"""Spans and metrics of FastStream's middleware, through a real broker."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sprocket import ConsumeFrom
from sprocket.testing import Broker

pytest.importorskip("faststream", reason="faststream is not installed: pip install 'sprocket-mq[faststream]'")
pytest.importorskip("opentelemetry.sdk", reason="opentelemetry is not installed: pip install 'sprocket-mq[metrics]'")

from opentelemetry.sdk.metrics import MeterProvider  # after the checks
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sprocket.contrib.faststream import SprocketBroker
from sprocket.contrib.faststream.opentelemetry import SprocketTelemetryMiddleware

WAIT_S = 60


class Telemetry:
    """What a middleware exports."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider(metric_readers=[self.reader])
        self.middleware = SprocketTelemetryMiddleware(tracer_provider=tracers, meter_provider=meters)

    def span(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        [span] = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return span

    def counts(self) -> dict[str, int]:
        """Messages by the name of a counter."""
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = [metric for scope in data.resource_metrics[0].scope_metrics for metric in scope.metrics]
        points: dict[str, Any] = {metric.name: metric.data.data_points for metric in metrics}
        return {name: sum(point.value for point in found) for name, found in points.items() if "duration" not in name}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("telemetry")) as broker:
        yield broker


async def test_a_handler_continues_the_trace_of_its_message(servers: Broker) -> None:
    servers.create_topic("Traced", 1)
    telemetry, seen = Telemetry(), asyncio.Event()
    broker = SprocketBroker(servers.namesrv, middlewares=[telemetry.middleware])

    @broker.subscriber("Traced", group="traced", consume_from=ConsumeFrom.FIRST)
    async def handle(number: int) -> None:
        seen.set()

    async with broker:
        sent = await broker.publish(7, "Traced", tags="new", keys=["a", "b"], correlation_id="abc")
        await broker.start()
        await asyncio.wait_for(seen.wait(), WAIT_S)
    published, processed = telemetry.span("Traced publish"), telemetry.span("Traced process")
    assert published.context is not None
    assert processed.context is not None
    assert published.context.trace_id == processed.context.trace_id
    common = {
        "messaging.system": "rocketmq",
        "messaging.message.conversation_id": "abc",
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("a", "b"),
    }
    assert dict(published.attributes or {}) == common | {
        "messaging.operation": "publish",
        "messaging.destination.name": "Traced",
    }
    assert dict(processed.attributes or {}) == common | {
        "messaging.operation": "process",
        "messaging.destination_publish.name": "Traced",
        "messaging.message.id": sent.message_id,
        "messaging.message.payload_size_bytes": 1,
    }
    assert telemetry.counts() == {"messaging.publish.messages": 1, "messaging.process.messages": 1}


async def test_a_batch_links_to_the_traces_of_its_messages(servers: Broker) -> None:
    servers.create_topic("Linked", 1)
    telemetry, seen = Telemetry(), asyncio.Event()
    broker = SprocketBroker(servers.namesrv, middlewares=[telemetry.middleware])

    @broker.subscriber("Linked", group="linked", consume_from=ConsumeFrom.FIRST, batch=True)
    async def handle(numbers: list[int]) -> None:
        assert numbers == [10, 20, 30]
        seen.set()

    async with broker:
        await broker.publish_batch(10, 20, 30, topic="Linked")
        await broker.start()
        await asyncio.wait_for(seen.wait(), WAIT_S)
    published, processed = telemetry.span("Linked publish"), telemetry.span("Linked process")
    created = [span for span in telemetry.exporter.get_finished_spans() if span.name == "Linked create"]
    assert [len(span.links) for span in created] == [0, 1]
    assert published.context is not None
    assert created[1].links[0].context.trace_id == published.context.trace_id
    for span in (published, processed):
        assert (span.attributes or {})["messaging.batch.message_count"] == 3
    assert (processed.attributes or {})["messaging.message.payload_size_bytes"] == 6
    assert telemetry.counts() == {"messaging.publish.messages": 3, "messaging.process.messages": 3}
