"""Delayed messages: their delivery time, their lasting name, and their recall."""

import base64
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sprocket import BrokerRefused, ConsumeFrom, Consumer, IllegalMessage, Message, Producer, SendSettings
from sprocket.client.connection.unique_id import derived_id
from sprocket.client.send.recall import RecallHandle
from sprocket.client.send.send_request import single_request
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.send import RecallMessageRequestHeader, SendMessageResponseHeader
from sprocket.remoting.message import properties as message_properties
from sprocket.testing import Broker
from tests.client.fake_cluster import FakeBroker, FakeNameServer, route, topic_data


def properties(message: Message) -> dict[str, str]:
    return message_properties.parse(single_request(message, SendSettings(), lambda: "ID").properties)


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message("T", b"x", delay_level=3), "DELAY", "3"),
        (Message("T", b"x", delay=1.5), "TIMER_DELAY_MS", "1500"),
        (Message("T", b"x", delay=timedelta(seconds=2.5)), "TIMER_DELAY_MS", "2500"),
        (Message("T", b"x", deliver_at=1_700_000_000_123), "TIMER_DELIVER_MS", "1700000000123"),
        (Message("T", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)), "TIMER_DELIVER_MS", "1893456000000"),
    ],
)
def test_time_of_delivery_is_one_property(message: Message, name: str, value: str) -> None:
    found = properties(message)
    assert found[name] == value
    assert set(found) == {"UNIQ_KEY", "WAIT", name}


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"delay": 1, "delay_level": 1}, "one of delay_level, delay and deliver_at"),
        ({"delay": 1, "deliver_at": 1_700_000_000_000}, "one of"),
        ({"deliver_at": 1_700_000_000_000, "delay_level": 2}, "one of"),
        ({"delay": -1}, "delay is -1 s"),
        ({"delay": timedelta(seconds=-1)}, "delay is -1 s"),
    ],
)
def test_two_times_or_a_negative_one_are_refused(times: dict[str, Any], reason: str) -> None:
    with pytest.raises(IllegalMessage, match=reason):
        Message("T", b"x", **times)
    late = Message("T", b"x")
    late.delay_ms, late.delay_level = -1, 0
    with pytest.raises(IllegalMessage, match="TIMER_DELAY_MS"):
        properties(late)
    late.delay_level = 1
    with pytest.raises(IllegalMessage, match="one of"):
        properties(late)


def test_unique_key_makes_the_id() -> None:
    ids = {properties(Message("T", body, unique_key="order-7"))["UNIQ_KEY"] for body in (b"x", b"y")}
    ids |= {derived_id("T", "order-7")}
    assert len(ids) == 1
    others = {derived_id("U", "order-7"), derived_id("T", "order-8"), derived_id("Tord", "er-7")}
    assert len(ids | others) == 4
    assert all(len(text) == 32 and int(text, 16) >= 0 for text in ids | others)


def handle(*parts: str) -> str:
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def test_recall_handle_is_read() -> None:
    text = handle("v1", "T", "broker-a", "1700000000000", "ID")
    assert RecallHandle.decode(text) == RecallHandle("T", "broker-a", "1700000000000", "ID")


@pytest.mark.parametrize("text", ["", "?", "djE=", handle("v2", "T", "a", "1", "ID"), handle("v1", "T", "a", "1")])
def test_other_text_is_no_handle(text: str) -> None:
    with pytest.raises(IllegalMessage, match="no recall handle"):
        RecallHandle.decode(text)


async def test_recall_goes_to_the_broker_of_the_handle() -> None:
    asked: list[RecallMessageRequestHeader] = []

    def recalled(request: Request[RecallMessageRequestHeader]) -> Response:
        asked.append(request.header)
        return Response(header={"msgId": "ID"}) if len(asked) == 1 else Response(ResponseCode.SYSTEM_ERROR, "too late")

    def accept(request: Request[object]) -> Response:
        return Response(header=SendMessageResponseHeader(msg_id="00", queue_id=0, queue_offset=0, recall_handle=given))

    given = handle("v1", "T", "b", "1700000000000", "ID")
    recalls = route(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader, recalled)
    async with FakeNameServer() as names, FakeBroker("a") as a, FakeBroker("b", routes=[recalls]) as b:
        names.topics["T"] = topic_data(a, b)
        a.script.append(accept)
        b.script.append(accept)
        async with Producer("g", names.address) as producer:
            result = await producer.send(Message("T", b"x", delay=60))
            assert result.recall_handle == given
            assert await producer.recall(given) == "ID"
            assert (asked[0].topic, asked[0].producer_group, asked[0].recall_handle) == ("T", "g", given)
            with pytest.raises(BrokerRefused, match="too late"):
                await producer.recall(given)


async def test_delays_on_a_broker(tmp_path: Path) -> None:
    with Broker(tmp_path, properties={"recallMessageEnable": "true"}) as broker:
        async with (
            Producer("g", broker.namesrv) as producer,
            Consumer("c", ["Later"], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            begun_ms = time.time() * 1000
            after = await producer.send(Message("Later", b"after", delay=timedelta(milliseconds=600)))
            await producer.send(Message("Later", b"at", deliver_at=round(begun_ms) + 1300))
            never = await producer.send(Message("Later", b"never", delay=1.2))
            assert after.recall_handle is not None
            assert never.recall_handle is not None
            assert RecallHandle.decode(never.recall_handle).topic == "Later"
            assert await producer.recall(never.recall_handle) == never.message_id
            for body, delay_ms in ((b"after", 600), (b"at", 1300)):
                message = await anext(consumer)
                assert message.body == body
                assert time.time() * 1000 >= begun_ms + delay_ms - 1
                await consumer.ack(message)
            assert message.message_id != after.message_id
            assert await consumer.receive(wait_s=0.7) == []
            with pytest.raises(BrokerRefused):
                await producer.send(Message("Later", b"x", delay=timedelta(days=4)))
            with pytest.raises(BrokerRefused):  # it has been delivered
                await producer.recall(after.recall_handle)
