"""All clients share the proxy's connection to a broker: what the broker would answer by closing it is refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.clients.members import Consumers, Member
from proxy.clients.memberships import Memberships
from sprocket.common import limits
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import ConsumerData, SubscriptionData
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import ROCKETMQ
from tests.proxy.remoting.test_remoting_port import Caller
from tests.proxy.rig import Rig, consumer_settings, handle_of, receive_request

code = RequestCode
_MIB = 1024 * 1024


@pytest.fixture
async def shared(rig: Rig, topic: str) -> AsyncIterator[Rig]:
    """A proxy whose connection to the broker carries a long poll of another client, and still does at the end."""
    other = rig.client()
    await other.send(topic, "x")
    polling = asyncio.ensure_future(other.receive(topic, "group-other", wait_s=20))
    remoting = rig.proxy.brokers.instance.remoting
    channel = remoting.open_channel(rig.broker.address)
    assert channel is not None
    yield rig
    assert (await other.send(topic, "y")).status.code == wire.OK
    assert remoting.open_channel(rig.broker.address) is channel and not channel.is_closed
    assert (await polling)[0].status.code == wire.OK


@pytest.mark.parametrize(
    ("kind", "text"),
    [(wire.SQL, "a IS NULL OR " * 100_000), (wire.TAG, "tag||" * 300_000), (wire.SQL, "\x01" * _MIB)],
)
async def test_filter_of_a_receive(shared: Rig, topic: str, kind: int, text: str) -> None:
    expression = wire.FilterExpression(type=kind, expression=text)
    parts = await shared.client().receive(topic, "group", wait_s=0, filter_expression=expression)
    assert parts[0].status.code == wire.ILLEGAL_FILTER_EXPRESSION and "65536" in parts[0].status.message


async def test_texts_of_a_receive_and_of_a_dead_letter(shared: Rig, topic: str) -> None:
    client, long = shared.client(), "x" * (_MIB + 1)
    parts = await client.stream("ReceiveMessage", receive_request(topic, "group-long", wait_s=0, attempt_id=long))
    assert parts[0].status.code == wire.PAYLOAD_TOO_LARGE and str(limits.MAX_HEADER_BYTES) in parts[0].status.message
    await client.receive(topic, "group-long", wait_s=0)
    await client.send(topic, "bad")
    (received,) = await client.messages(topic, "group-long", 1)
    request = wire.ForwardMessageToDeadLetterQueueRequest(
        group=wire.Resource(name="group-long"), topic=wire.Resource(name=topic), message_id=long,
        receipt_handle=handle_of(received)[1],
    )  # fmt: skip
    assert (await client.call("ForwardMessageToDeadLetterQueue", request)).status.code == wire.PAYLOAD_TOO_LARGE


async def test_acknowledgements_that_span_too_much(shared: Rig, topic: str) -> None:
    # Each has one bit for every message between two of them.
    now_ms = shared.proxy.brokers.instance.clock.wall_ms()
    name = next(iter((await shared.proxy.brokers.route(topic)).broker_addresses))
    handles = [f"0 {now_ms - number} 60000 0 0 {name} 0 99999 0" for number in range(1200)]
    answer = await shared.client().ack(topic, "group-span", *(("id", handle) for handle in handles))
    assert answer.status.code == wire.PAYLOAD_TOO_LARGE


def _sent(caller: Caller, topic: str) -> tuple[int, dict[str, str], bytes]:
    fields = caller.send_fields(topic)
    before = encode_request(code.SEND_MESSAGE_V2, 0, fields, serialization=ROCKETMQ)
    return code.SEND_MESSAGE_V2, fields, b"x" * (limits.MAX_FRAME_BYTES - len(before))


def _pulled(caller: Caller, topic: str) -> tuple[int, dict[str, str], bytes]:
    fields = {"topic": topic, "consumerGroup": "g", "sysFlag": "4", "subscription": "x" * (_MIB - 150)}
    return code.PULL_MESSAGE, fields, b""


def _escaped(caller: Caller, topic: str) -> tuple[int, dict[str, str], bytes]:
    return code.GET_MAX_OFFSET, {"topic": topic, "queueId": "0", "x": "\x01" * (_MIB // 2)}, b""


def _relying_on_a_heartbeat(caller: Caller, topic: str) -> tuple[int, dict[str, str], bytes]:
    # The proxy adds the subscription to what it forwards.
    fields = {f"f{number}": "1" for number in range(limits.MAX_EXT_FIELDS - 3)}
    return code.PULL_MESSAGE, fields | {"topic": topic, "consumerGroup": "heard", "sysFlag": "0"}, b""


def _routed(caller: Caller, topic: str) -> tuple[int, dict[str, str], bytes]:
    return code.GET_ROUTEINFO_BY_TOPIC, {"topic": "\x01" * (_MIB // 2)}, b""


@pytest.mark.parametrize("ask", [_sent, _pulled, _escaped, _relying_on_a_heartbeat, _routed])
async def test_requests_of_remoting_clients(shared: Rig, topic: str, ask: Any) -> None:
    caller = Caller(shared)
    await caller.heartbeat("one", "heard", topic)
    number, fields, body = ask(caller, topic)
    channel = await caller.client.channel(caller.address)
    # In binary a header may have what does not fit into JSON.
    answer = await channel.request(number, fields, body, timeout_s=10, serialization=ROCKETMQ)
    assert answer.code == ResponseCode.INVALID_PARAMETER and "at most" in (answer.remark or ""), answer.remark
    await caller.client.close()


@pytest.mark.parametrize(
    "settings",
    [
        consumer_settings("x" * 300_000, "group"),
        wire.Settings(
            client_type=wire.PUSH_CONSUMER,
            subscription=wire.Subscription(
                group=wire.Resource(name="group"),
                subscriptions=[wire.SubscriptionEntry(topic=wire.Resource(name="T")) for _ in range(2001)],
            ),
        ),
    ],
    ids=["bytes", "subscriptions"],
)
async def test_settings_that_no_broker_would_take(rig: Rig, settings: wire.Settings) -> None:
    stream = rig.client().telemetry()
    await stream.write(wire.TelemetryCommand(settings=settings))
    with pytest.raises(Exception, match=r"at most|limit is"):
        await stream.read()
    assert not len(rig.proxy.clients)


def test_heartbeat_names_what_a_broker_takes() -> None:
    class NoProducers:
        def heartbeat(self, client_id: str) -> None: ...

    consumers = Consumers(lambda: 0.0, 60)
    sizes = {"a": 10, "b-large": 1500, "c": 10, "d-many": 2000, "e": 10}
    for name, count in sizes.items():
        wanted = [SubscriptionData(f"T{number}", "*" if name != "b-large" else "x" * 500) for number in range(count)]
        member = Member(name, name, "JAVA", 0, "", "", 0.0)
        consumers.heard(member, ConsumerData(name, subscription_data_set=wanted))
    memberships = Memberships(NoProducers(), consumers, with_consumers=True)  # type: ignore[arg-type]
    memberships.look()
    heartbeat = memberships.heartbeat("proxy")
    assert heartbeat is not None
    assert [group.group_name for group in heartbeat.consumer_data_set] == ["a", "c", "e"]
    assert len(read_heartbeat(dumps(heartbeat)).consumer_data_set) == 3
