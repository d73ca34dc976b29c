"""Bad input is answered with the codes of RocketMQ's proxy, and says what is wrong."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from proxy.server.dispatcher import SERVICE
from sprocket.grpc_wire import messaging_pb2 as wire
from tests.proxy.rig import (
    ENDPOINTS,
    AnyBroker,
    Rig,
    consumer_settings,
    create_topic,
    handle_of,
    message,
    receive_request,
    running,
)


@pytest.fixture(params=["cluster", "local"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


_FAR = 1_900_000_000_000


def _named(topic: str = "", group: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    if topic:
        found["topic"] = wire.Resource(name=topic)
    if group:
        found["group"] = wire.Resource(name=group)
    return found


async def test_call_without_client_id(rig: Rig, topic: str) -> None:
    client = rig.client()
    for name in ("QueryRoute", "SendMessage", "Heartbeat", "AckMessage", "EndTransaction"):
        request = getattr(wire, SERVICE.methods_by_name[name].input_type.name)()
        answer = await client.call(name, request, metadata=[])
        assert answer.status.code == wire.CLIENT_ID_REQUIRED, name


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", wire.ILLEGAL_TOPIC),
        ("no spaces", wire.ILLEGAL_TOPIC),
        ("x" * 200, wire.ILLEGAL_TOPIC),
        ("RMQ_SYS_TRANS_HALF_TOPIC", wire.ILLEGAL_TOPIC),
        ("rmq_sys_wheel_timer", wire.ILLEGAL_TOPIC),
        ("Nowhere", wire.TOPIC_NOT_FOUND),
    ],
)
async def test_topics(rig: Rig, topic: str, code: int) -> None:
    client = rig.client()
    route = await client.call("QueryRoute", wire.QueryRouteRequest(endpoints=ENDPOINTS, **_named(topic)))
    sent = await client.send(topic, "x")
    parts = await client.receive(topic, "group")
    assert [route.status.code, sent.status.code, parts[0].status.code] == [code] * 3


@pytest.mark.parametrize("group", ["", "no spaces", "x" * 300, "CID_RMQ_SYS_TRANS"])
async def test_groups(rig: Rig, topic: str, group: str) -> None:
    client = rig.client()
    parts = await client.receive(topic, group)
    acked = await client.ack(topic, group, ("id", "handle"))
    assert [parts[0].status.code, acked.status.code] == [wire.ILLEGAL_CONSUMER_GROUP] * 2


def _big_property(sent: wire.Message) -> None:
    sent.user_properties["big"] = "x" * 20_000


def _many_properties(sent: wire.Message) -> None:
    for number in range(129):
        sent.user_properties[str(number)] = "x"


def _reserved(sent: wire.Message) -> None:
    sent.user_properties["TRAN_MSG"] = "true"


def _other_queues(sent: wire.Message) -> None:
    sent.user_properties["INNER_MULTI_DISPATCH"] = "%LMQ%other"


def _forged(sent: wire.Message) -> None:
    sent.user_properties["a"] = "b\x02TRAN_MSG\x01true"


def _far(sent: wire.Message) -> None:
    sent.system_properties.delivery_timestamp.seconds = _FAR // 1000


def _no_time(sent: wire.Message) -> None:
    sent.system_properties.delivery_timestamp.seconds = 1 << 60


def _no_id(sent: wire.Message) -> None:
    sent.system_properties.message_id = " "


def _forged_id(sent: wire.Message) -> None:
    sent.system_properties.message_id = "id\x02PGROUP\x01other"


def _empty(sent: wire.Message) -> None:
    sent.body = b""


def _long(sent: wire.Message) -> None:
    sent.body = b"x" * (4 * 1024 * 1024 + 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_empty, wire.MESSAGE_BODY_EMPTY),
        (_long, wire.MESSAGE_BODY_TOO_LARGE),
        (_no_id, wire.ILLEGAL_MESSAGE_ID),
        (_forged_id, wire.ILLEGAL_MESSAGE_ID),
        (_big_property, wire.MESSAGE_PROPERTIES_TOO_LARGE),
        (_many_properties, wire.MESSAGE_PROPERTIES_TOO_LARGE),
        (_reserved, wire.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (_other_queues, wire.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (_forged, wire.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (_far, wire.ILLEGAL_DELIVERY_TIME),
        (_no_time, wire.ILLEGAL_DELIVERY_TIME),
        (lambda sent: sent.system_properties.keys.append("a\nb"), wire.ILLEGAL_MESSAGE_KEY),
        (lambda sent: sent.user_properties.update({"__SHARDINGKEY": "x"}), wire.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (lambda sent: sent.user_properties.update({"__LITE_TOPIC": "x"}), wire.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (lambda sent: sent.user_properties.update({"_SYS_MSG_PRIORITY_": "1"}), wire.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (lambda sent: setattr(sent.system_properties, "tag", "a|b"), wire.ILLEGAL_MESSAGE_TAG),
        (lambda sent: setattr(sent.system_properties, "tag", " "), wire.ILLEGAL_MESSAGE_TAG),
        (lambda sent: setattr(sent.system_properties, "message_group", "x" * 64), wire.ILLEGAL_MESSAGE_GROUP),
    ],
)
async def test_messages(rig: Rig, topic: str, change: Callable[[wire.Message], object], code: int) -> None:
    sent = message(topic, "body")
    change(sent)
    answer = await rig.client().call("SendMessage", wire.SendMessageRequest(messages=[sent]))
    assert wire.Code.Name(answer.status.code) == wire.Code.Name(code)


async def test_no_message_and_two_topics(rig: Rig, broker: AnyBroker, topic: str) -> None:
    client = rig.client()
    none = await client.call("SendMessage", wire.SendMessageRequest())
    mixed = wire.SendMessageRequest(messages=[message(topic, "a"), message(await create_topic(broker), "b")])
    assert none.status.code == wire.MESSAGE_CORRUPTED
    assert (await client.call("SendMessage", mixed)).status.code == wire.MESSAGE_CORRUPTED


@pytest.mark.parametrize(
    ("kind", "system", "is_taken"),
    [
        ("NORMAL", {}, True),
        ("NORMAL", {"message_group": "g"}, False),
        ("FIFO", {"message_group": "g"}, True),
        ("FIFO", {}, False),
        ("DELAY", {}, False),
        ("TRANSACTION", {"message_type": wire.TRANSACTION}, True),
        ("NORMAL", {"message_type": wire.TRANSACTION}, False),
        ("MIXED", {}, True),
    ],
)
async def test_topic_takes_messages_of_its_type(
    rig: Rig, broker: AnyBroker, kind: str, system: dict[str, Any], is_taken: bool
) -> None:
    answer = await rig.client().send(await create_topic(broker, kind), "x", **system)
    assert answer.status.code == (wire.OK if is_taken else wire.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE)


async def test_handles(rig: Rig, topic: str) -> None:
    client, group = rig.client(), "group-handles"
    await client.receive(topic, group, wait_s=0)
    await client.send(topic, "x")
    (received,) = await client.messages(topic, group, 1, invisible_s=1)
    message_id, handle = handle_of(received)
    parts = handle.split(" ")
    malformed = "no handle"
    foreign = " ".join([*parts[:5], "no-broker", *parts[6:]])
    numbers = " ".join(["x", *parts[1:]])
    huge = " ".join([*parts[:7], str(1 << 40), parts[8]])
    expired = " ".join([parts[0], "1", *parts[2:]])
    expected = {
        malformed: wire.INTERNAL_SERVER_ERROR, numbers: wire.INTERNAL_SERVER_ERROR, huge: wire.INTERNAL_SERVER_ERROR,
        foreign: wire.INVALID_RECEIPT_HANDLE, expired: wire.INVALID_RECEIPT_HANDLE,
    }  # fmt: skip
    for text, code in expected.items():
        answer = await client.ack(topic, group, (message_id, text))
        assert answer.entries[0].status.code == code, text
        change = wire.ChangeInvisibleDurationRequest(receipt_handle=text, message_id=message_id, **_named(topic, group))
        change.invisible_duration.seconds = 10
        assert (await client.call("ChangeInvisibleDuration", change)).status.code == code, text
    mixed = await client.ack(topic, group, (message_id, handle), (message_id, malformed))
    assert mixed.status.code == wire.MULTIPLE_RESULTS
    assert [entry.status.code for entry in mixed.entries] == [wire.OK, wire.INTERNAL_SERVER_ERROR]


async def test_times(rig: Rig, topic: str) -> None:
    client = rig.client()
    for seconds in (0, 13 * 3600):
        parts = await client.receive(topic, "group", invisible_s=seconds)
        assert parts[0].status.code == wire.ILLEGAL_INVISIBLE_TIME
    filtered = wire.FilterExpression(type=wire.SQL, expression="")
    parts = await client.receive(topic, "group", filter_expression=filtered)
    assert parts[0].status.code == wire.ILLEGAL_FILTER_EXPRESSION


async def test_time_that_is_too_short_for_a_long_poll(broker: AnyBroker, topic: str) -> None:
    async with running(broker, grpc_client_consumer_min_long_polling_timeout_millis=5000) as rig:
        parts = await rig.client().stream("ReceiveMessage", receive_request(topic, "group"), timeout_s=2)
        assert parts[0].status.code == wire.ILLEGAL_POLLING_TIME


async def test_long_poll_without_a_time_ends_before_the_deadline_of_its_call(rig: Rig, topic: str) -> None:
    client = rig.client()
    settings = consumer_settings(topic, "group-deadline")
    settings.request_timeout.seconds = 2  # half of it stays for the way
    stream, _ = await client.report(settings)
    request = receive_request(topic, "group-deadline")
    request.ClearField("long_polling_timeout")
    parts = await client.stream("ReceiveMessage", request, timeout_s=2.5)
    assert parts[0].status.code == wire.MESSAGE_NOT_FOUND
    stream.cancel()


async def test_calls_of_one_connection_are_bounded(broker: AnyBroker, topic: str) -> None:
    async with running(broker, grpc_max_concurrent_streams=2) as rig:
        client = rig.client()
        await client.call("QueryRoute", wire.QueryRouteRequest())  # the client learns the limit
        polls = [client.open_stream("ReceiveMessage", receive_request(topic, "group-streams")) for _ in range(2)]
        with pytest.raises(grpc.aio.AioRpcError) as waited:
            await client.call("QueryRoute", wire.QueryRouteRequest(), timeout_s=0.5)
        assert waited.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        for poll in polls:
            poll.cancel()
        assert (await client.call("QueryRoute", wire.QueryRouteRequest())).status.code == wire.ILLEGAL_TOPIC


async def test_every_method_of_the_protocol_is_answered(rig: Rig) -> None:
    client = rig.client()
    for method in SERVICE.methods:
        request = getattr(wire, method.input_type.name)()
        if method.name == "Telemetry":
            continue
        if method.server_streaming:
            assert await client.stream(method.name, request)
        else:
            assert (await client.call(method.name, request)).status.code != wire.OK, method.name


async def test_messages_of_newer_kinds_are_refused_by_name(broker: AnyBroker) -> None:
    # They would be sent as ordinary ones, in any order and to any consumer.
    topic = await create_topic(broker)
    async with running(broker, enable_topic_message_type_check=False) as rig:
        answer = await rig.client().send(topic, "x", message_type=99)
        assert answer.status.code == wire.UNSUPPORTED and "99" in answer.status.message


async def test_metadata_and_messages_are_bounded(broker: AnyBroker, topic: str) -> None:
    async with running(broker, grpc_max_inbound_metadata_size=4096, grpc_max_inbound_message_size=100_000) as rig:
        client = rig.client()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            big = [*client.metadata, ("x-big", "x" * 8192)]
            await client.call("QueryRoute", wire.QueryRouteRequest(), metadata=big)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.send(topic, "x" * 200_000)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.send(topic, "x")).status.code == wire.OK


async def test_bodies_in_flight_are_bounded(broker: AnyBroker, topic: str) -> None:
    async with running(broker, grpc_max_in_flight_size=1000) as rig:
        client = rig.client()
        answers = await asyncio.gather(*(client.send(topic, "x" * 900) for _ in range(40)))
        codes = {answer.status.code for answer in answers}
        assert codes == {wire.OK, wire.TOO_MANY_REQUESTS}
        assert (await client.send(topic, "x" * 5000)).status.code == wire.OK
