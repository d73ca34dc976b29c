"""What fails for a while is logged when it begins and when it is over, and is told apart by what was attempted."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.client.connection.outages import Outages
from sprocket.client.errors import BrokerRefused, ConnectFailed, ConnectionLost, PermissionDenied, RemotingTimeout
from sprocket.testing import Broker
from tests.waiting import until

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


def test_a_server_that_cannot_be_reached_is_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sprocket.client")
    now = 100.0
    outages = Outages(lambda: now)
    refused = ConnectFailed("connect to a:1: connection refused", "a:1")
    lost = ConnectionLost("a:1 closed the connection before it answered PULL_MESSAGE", "a:1")
    assert not any(outages.failed(("pull", number), lost) for number in range(4))
    now = 102.0
    assert not outages.failed("heartbeat", refused)
    assert not outages.failed("heartbeat", RemotingTimeout("no response in time from b:1", "b:1"))
    assert caplog.messages == [
        f"event=server_unreachable server=a:1 reason={str(lost)!r}",
        "event=server_unreachable server=b:1 reason='no response in time from b:1'",
    ]
    caplog.clear()
    assert outages.succeeded(("pull", 7)) is None
    assert caplog.messages == []
    assert outages.succeeded(("pull", 2)) is None
    assert caplog.messages == ["event=server_reachable server=a:1 after_s=2.0 failures=5"]
    assert outages.succeeded(("pull", 3)) is None
    assert len(caplog.messages) == 1
    assert not outages.failed(("pull", 3), lost)
    assert len(caplog.messages) == 2


def test_an_outage_that_nobody_followed_is_not_kept_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outages = Outages(lambda: now)
    outages.failed("commit", ConnectFailed("refused", "a:1"))
    now = 60.0
    outages.failed("commit", ConnectFailed("refused", "a:1"))
    now = 200.0
    outages.failed("pull", ConnectFailed("refused", "a:1"))
    assert caplog.messages == ["event=server_unreachable server=a:1 reason='refused'"] * 2


async def test_an_outage_of_a_broker_logs_one_line_for_each_server(
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
    begun_lines = [line for line in caplog.messages if "event=server_unreachable" in line]
    # Both clients miss the name server, and at least the consumer misses the broker.
    assert {line.split()[1] for line in begun_lines} == {f"server={broker.namesrv}", f"server={broker.address}"}
    assert len(begun_lines) <= 4
    # After the restart a first request of a kind may be refused, until the broker knows the group again.
    assert len(caplog.messages) - len(begun_lines) <= 6, "\n".join(caplog.messages)
    assert all(message.levelno == logging.WARNING for message in caplog.records)
