"""What fails for a while is logged when it begins and when it is over, and is told apart by what was attempted."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.client.connection.outages import Outages
from sprocket.client.errors import BrokerRefused, PermissionDenied
from sprocket.testing import Broker
from tests.client.fake_cluster import until

DENIED = PermissionDenied(16, "no", "a:1")
OTHER = BrokerRefused(1, "no", "a:1")


def test_an_outage_begins_once_and_ends_once() -> None:
    now = 100.0
    outages = Outages(lambda: now)
    assert outages.succeeded("pull") is None
    assert outages.failed("pull", OTHER)
    assert outages.failed("heartbeat", OTHER)
    now = 103.0
    assert not outages.failed("pull", DENIED)
    assert outages.succeeded("pull") == (3.0, 2)
    assert outages.succeeded("pull") is None
    assert outages.failed("pull", OTHER)


def test_what_is_denied_is_told_until_it_is_permitted() -> None:
    told: list[PermissionDenied | None] = []
    outages = Outages(lambda: 0.0, told.append)
    outages.failed("pull", OTHER)
    outages.failed("pull", DENIED)
    outages.failed("heartbeat", DENIED)
    assert outages.denial is DENIED
    outages.succeeded("pull")
    assert told == [DENIED, DENIED]
    outages.succeeded("heartbeat")
    assert outages.denial is None
    assert told == [DENIED, DENIED, None]
    outages.failed("pull", DENIED)
    outages.told()
    assert outages.denial is None
    assert told[3:] == [DENIED, None]


async def test_an_outage_of_a_broker_logs_one_line_for_each_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="sprocket.client")
    with Broker(tmp_path) as broker:
        broker.create_topic("T", 4)
        async with (
            Consumer("g", "T", broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
            Producer("p", broker.namesrv) as producer,
        ):
            await until(lambda: len(consumer.assignment) == 4)
            await producer.send(Message("T", b"before"))
            await consumer.ack(await anext(consumer))
            assert caplog.messages == []  # a healthy start
            await asyncio.to_thread(broker.kill)
            await asyncio.sleep(5)
            await asyncio.to_thread(broker.start)
            begun = time.monotonic()
            while True:
                try:
                    await producer.send(Message("T", b"after"))
                    break
                except Exception:
                    assert time.monotonic() < begun + 60
            while (await anext(consumer)).body != b"after":
                pass
    pulls = [line for line in caplog.messages if "event=pull_failed" in line]
    assert len(pulls) == len({line.split(" reason=")[0] for line in pulls}) == 5
    # Beside the queues: heartbeat, two routes, the commit, two rebalances.
    assert len(caplog.messages) <= 14, "\n".join(caplog.messages)
