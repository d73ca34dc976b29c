"""Metrics of OpenTelemetry: sends, failures of sends, deliveries, and the time that their handling takes."""

from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import sprocket
from sprocket import ConsumeFrom, Message, Producer, SendFailed, TopicNotFound, TraceSettings
from sprocket.testing import Broker

METERED = TraceSettings(metrics=True, sample=0)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", MeterProvider([reader]).get_meter)
    return reader


def points(reader: InMemoryMetricReader) -> dict[tuple[str, str, str], Any]:
    """Return the points by name of the metric, operation and error."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, point.attributes["messaging.operation.name"], point.attributes.get("error.type", "")): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


async def test_sends_and_deliveries_are_counted(
    shared_broker: Broker, topic: str, reader: InMemoryMetricReader
) -> None:
    async with sprocket.connect(shared_broker.namesrv) as mq, mq.producer("P", trace=METERED) as producer:
        await producer.send(Message(topic, b"1"))
        await producer.send(Message(topic, b"2"), sharding_key="k")
        await producer.send_batch([Message(topic, b"3"), Message(topic, b"4"), Message(topic, b"5")])
        consumer = mq.consumer(f"g-{topic}", topic, consume_from=ConsumeFrom.FIRST, trace=METERED)
        for number in range(5):
            message = await anext(consumer)
            if number:
                await message.ack()
            else:
                await message.nack()
        popping = mq.simple_consumer(f"p-{topic}", topic, consume_from=ConsumeFrom.FIRST, trace=METERED)
        for popped in await popping.receive(1, wait_s=10):
            await popped.ack()
    found = points(reader)
    sent = found["messaging.client.sent.messages", "send", ""]
    assert (sent.value, sent.attributes["messaging.destination.name"]) == (5, topic)
    assert found["messaging.client.operation.duration", "send", ""].count == 3
    assert found["messaging.client.operation.duration", "send", ""].sum > 0
    assert sum(point.value for key, point in found.items() if key[0] == "messaging.client.consumed.messages") >= 1
    assert found["messaging.process.duration", "process", "rejected"].count == 1


async def test_failed_sends_have_the_kind_of_error(
    shared_broker: Broker, topic: str, reader: InMemoryMetricReader
) -> None:
    async with Producer("P", "127.0.0.1:1", trace=METERED) as producer:
        with pytest.raises((sprocket.NameServerUnreachable, SendFailed, TopicNotFound)) as raised:
            await producer.send(Message(topic, b"1"))
    found = points(reader)
    assert found["messaging.client.operation.duration", "send", type(raised.value).__name__].count == 1
    assert not any(name == "messaging.client.sent.messages" for name, _, _ in found)


async def test_nothing_is_loaded_or_counted_without_the_setting(
    shared_broker: Broker, topic: str, reader: InMemoryMetricReader
) -> None:
    async with Producer("P", shared_broker.namesrv, trace=TraceSettings(sample=0)) as producer:
        await producer.send(Message(topic, b"1"))
    assert reader.get_metrics_data() is None
