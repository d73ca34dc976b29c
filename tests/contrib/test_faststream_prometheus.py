"""Metrics of FastStream's middleware for Prometheus, through a real broker."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sprocket import ConsumeFrom, ReceivedMessage
from sprocket.testing import Broker

pytest.importorskip("faststream", reason="faststream is not installed: pip install 'sprocket-mq[faststream]'")
pytest.importorskip("prometheus_client", reason="it is not installed: pip install 'sprocket-mq[prometheus]'")

from faststream.exceptions import RejectMessage  # after the checks
from prometheus_client import CollectorRegistry, generate_latest

from sprocket.contrib.faststream import SprocketBroker
from sprocket.contrib.faststream.prometheus import SprocketPrometheusMiddleware

WAIT_S = 60
COMMON = {"app_name": "shop", "broker": "rocketmq"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("prometheus")) as broker:
        yield broker


class Page:
    """Metrics of one broker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.middleware = SprocketPrometheusMiddleware(registry=self.registry, app_name="shop")

    def value(self, name: str, **labels: str) -> float:
        """Return a sample; 0 if there is none."""
        return self.registry.get_sample_value(f"faststream_{name}", COMMON | labels) or 0.0


async def test_messages_are_counted_with_their_outcome(servers: Broker) -> None:
    servers.create_topic("Counted", 1)
    page, seen = Page(), asyncio.Queue[float]()
    broker = SprocketBroker(servers.namesrv, middlewares=[page.middleware])

    @broker.subscriber("Counted", group="counted", consume_from=ConsumeFrom.FIRST)
    async def handle(number: int) -> None:
        seen.put_nowait(page.value("received_messages_in_process", handler="Counted"))
        if number == 2:
            raise RejectMessage
        if number == 3:
            raise ValueError(number)

    async with broker:
        for number in (1, 2, 3):
            await broker.publish(number, "Counted")
        await broker.start()
        assert [await asyncio.wait_for(seen.get(), WAIT_S) for _ in range(3)] == [1, 1, 1]
    handled = {"handler": "Counted"}
    assert page.value("received_messages_total", **handled) == 3
    assert page.value("received_messages_size_bytes_sum", **handled) == 3
    assert page.value("received_messages_in_process", **handled) == 0
    assert page.value("received_processed_messages_duration_seconds_count", **handled) == 3
    outcomes = {
        status: page.value("received_processed_messages_total", status=status, **handled)
        for status in ("acked", "nacked", "rejected", "skipped", "error")
    }
    assert outcomes == {"acked": 1, "nacked": 0, "rejected": 1, "skipped": 0, "error": 1}
    errors = page.value("received_processed_messages_exceptions_total", exception_type="ValueError", **handled)
    assert errors == 1
    sent = {"destination": "Counted"}
    assert page.value("published_messages_total", status="success", **sent) == 3
    assert page.value("published_messages_duration_seconds_count", **sent) == 3
    assert b'faststream_received_messages_total{app_name="shop",broker="rocketmq"' in generate_latest(page.registry)


async def test_a_batch_counts_its_messages(servers: Broker) -> None:
    servers.create_topic("Batched", 1)
    page, seen = Page(), asyncio.Event()
    broker = SprocketBroker(servers.namesrv, middlewares=[page.middleware])

    @broker.subscriber("Batched", group="batched", consume_from=ConsumeFrom.FIRST, batch=True)
    async def handle(numbers: list[int]) -> None:
        assert numbers == [10, 200, 3000]
        seen.set()

    async with broker:
        await broker.publish_batch(10, 200, 3000, topic="Batched")
        await broker.start()
        await asyncio.wait_for(seen.wait(), WAIT_S)
    handled = {"handler": "Batched"}
    assert page.value("received_messages_total", **handled) == 3
    assert page.value("received_messages_size_bytes_sum", **handled) == 9
    assert page.value("received_messages_size_bytes_count", **handled) == 1
    assert page.value("received_processed_messages_total", status="acked", **handled) == 3
    assert page.value("published_messages_total", status="success", destination="Batched") == 3


async def test_a_failed_publish_is_counted_as_one(servers: Broker) -> None:
    page = Page()
    async with SprocketBroker(servers.namesrv, middlewares=[page.middleware]) as broker:
        with pytest.raises(ValueError, match="tags"):
            await broker.publish(1, "Counted", tags="a||b")
    sent = {"destination": "Counted"}
    assert page.value("published_messages_total", status="error", **sent) == 1
    assert page.value("published_messages_exceptions_total", exception_type="IllegalMessage", **sent) == 1


async def test_labels_of_the_application_see_the_message(servers: Broker) -> None:
    servers.create_topic("Labelled", 1)
    registry, seen = CollectorRegistry(), asyncio.Event()

    def tag(message: Any) -> str:
        return message.tags if isinstance(message, ReceivedMessage) else "none"

    middleware = SprocketPrometheusMiddleware(
        registry=registry, metrics_prefix="shop", custom_labels={"tag": tag, "zone": "b"}
    )
    broker = SprocketBroker(servers.namesrv, middlewares=[middleware])

    @broker.subscriber("Labelled", group="labelled", consume_from=ConsumeFrom.FIRST)
    async def handle(number: int) -> None:
        seen.set()

    async with broker:
        await broker.publish(7, "Labelled", tags="new")
        await broker.start()
        await asyncio.wait_for(seen.wait(), WAIT_S)
    labels = {"app_name": "shop", "broker": "rocketmq", "zone": "b"}
    received = labels | {"handler": "Labelled", "tag": "new"}
    assert registry.get_sample_value("shop_received_messages_total", received) == 1
    sent = labels | {"destination": "Labelled", "status": "success", "tag": "none"}
    assert registry.get_sample_value("shop_published_messages_total", sent) == 1
