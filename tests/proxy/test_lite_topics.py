"""Lite topics of gRPC clients: sends, subscriptions, receives in order, acknowledgements, notices to clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from acl.auth.settings import AuthSettings
from proxy.activity.receive import MAX_HELD
from sprocket.client.pop.lite_popped import lite_popped_messages
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.lite import LiteSubscriptionAction, LiteSubscriptionCtlRequestBody, LiteSubscriptionDTO
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request
from sprocket.remoting.headers.client import GetConsumerConnectionListRequestHeader
from sprocket.remoting.headers.lite import (
    NotifyUnsubscribeLiteRequestHeader,
    PopLiteMessageRequestHeader,
    PopLiteMessageResponseHeader,
)
from sprocket.remoting.headers.pop import AckMessageRequestHeader
from sprocket.remoting.routes import Action, Resource, Route
from sprocket.testing import Broker
from tests.proxy.remoting.test_remoting_port import Caller
from tests.proxy.rig import (
    GrpcClient,
    Rig,
    consumer_settings,
    create_group,
    create_topic,
    handle_of,
    receive_request,
    running,
)
from tests.proxy.test_access import signed, user_folder
from tests.proxy.test_commands import broker_tool

_LIMIT_S = 20


class Lite:
    """A parent topic with a group, and what clients do with them."""

    def __init__(self, rig: Rig, topic: str, group: str) -> None:
        self.rig = rig
        self.topic = topic
        self.group = group
        self.producer = rig.client()

    async def consumer(self, client_id: str = "", kind: int = wire.LITE_PUSH_CONSUMER) -> GrpcClient:
        """A consumer that has reported its settings; its stream is `stream`."""
        client = self.rig.client(client_id)
        client.stream_here, answer = await client.report(consumer_settings(self.topic, self.group, kind))  # type: ignore[attr-defined]
        assert answer.status.code == wire.OK, answer
        return client

    async def send(self, lite: str, *bodies: str) -> None:
        for body in bodies:
            answer = await self.producer.send(self.topic, body, lite_topic=lite, message_type=wire.LITE)
            assert answer.status.code == wire.OK, answer

    async def send_after_restart(self, lite: str, body: str) -> None:
        """Send as soon as the proxy has a connection to the broker again."""
        for _ in range(100):
            answer = await self.producer.send(self.topic, body, lite_topic=lite, message_type=wire.LITE)
            if answer.status.code == wire.OK:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(answer)

    async def sync(self, client: GrpcClient, action: int, *names: str, **fields: Any) -> wire.Status:
        request = wire.SyncLiteSubscriptionRequest(
            action=action, topic=wire.Resource(name=self.topic), group=wire.Resource(name=self.group),
            lite_topic_set=names, **fields,
        )  # fmt: skip
        return (await client.call("SyncLiteSubscription", request)).status

    async def subscribe(self, client: GrpcClient, *names: str, **fields: Any) -> None:
        status = await self.sync(client, wire.PARTIAL_ADD, *names, **fields)
        assert status.code == wire.OK, status

    async def bodies(self, client: GrpcClient, count: int, **fields: Any) -> list[tuple[str, str]]:
        """Receive and acknowledge; return lite topics and bodies in their order."""
        found: list[tuple[str, str]] = []
        for _ in range(12):
            for part in await client.receive(self.topic, self.group, **fields):
                if part.HasField("message"):
                    found.append((part.message.system_properties.lite_topic, part.message.body.decode()))
                    await self.ack(client, part.message)
            if len(found) >= count:
                break
        return found

    async def ack(self, client: GrpcClient, *received: wire.Message) -> None:
        answer = await client.call("AckMessage", self.ack_request(*received))
        assert answer.status.code == wire.OK, answer

    def ack_request(self, *received: wire.Message) -> wire.AckMessageRequest:
        return wire.AckMessageRequest(
            group=wire.Resource(name=self.group),
            topic=wire.Resource(name=self.topic),
            entries=[
                wire.AckMessageEntry(
                    message_id=one.system_properties.message_id, receipt_handle=one.system_properties.receipt_handle,
                    lite_topic=one.system_properties.lite_topic,
                )
                for one in received
            ],
        )  # fmt: skip


async def _lite(broker: Broker, rig: Rig, **attributes: str) -> Lite:
    topic = await create_topic(broker, "LITE")
    changes = {f"+lite.{name.replace('_', '.')}": value for name, value in attributes.items()}
    group = await create_group(broker, attributes={"+lite.bind.topic": topic} | changes)
    return Lite(rig, topic, group)


@pytest.fixture
async def lite(broker: Broker, rig: Rig) -> AsyncIterator[Lite]:
    yield await _lite(broker, rig)


async def test_consumer_gets_the_messages_of_its_lite_topics_in_order(lite: Lite) -> None:
    consumer = await lite.consumer()
    await lite.subscribe(consumer, "chat-1")
    await lite.send("chat-1", "a", "b", "c")
    await lite.send("chat-2", "other")
    assert await lite.bodies(consumer, 3) == [("chat-1", "a"), ("chat-1", "b"), ("chat-1", "c")]
    assert await lite.bodies(consumer, 0, wait_s=0) == []
    # A second one later, from its first message on.
    await lite.subscribe(consumer, "chat-2", offset_option=wire.OffsetOption(policy=wire.OffsetOption.MIN))
    assert await lite.bodies(consumer, 1) == [("chat-2", "other")]
    # What was acknowledged does not come again, and what is left no longer comes.
    assert (await lite.sync(consumer, wire.PARTIAL_REMOVE, "chat-1")).code == wire.OK
    await lite.send("chat-1", "d")
    await lite.send("chat-2", "more")
    assert await lite.bodies(consumer, 1) == [("chat-2", "more")]
    assert (await lite.sync(consumer, wire.COMPLETE_ADD, "chat-1")).code == wire.OK
    assert await lite.bodies(consumer, 1) == [("chat-1", "d")]


async def test_held_receive_wakes_when_a_message_of_the_lite_topic_comes(lite: Lite) -> None:
    consumer = await lite.consumer(kind=wire.LITE_SIMPLE_CONSUMER)
    await lite.subscribe(consumer, "chat")
    receiving = asyncio.create_task(lite.bodies(consumer, 1, wait_s=20))
    await asyncio.sleep(0.1)
    await lite.send("chat", "late")
    assert await asyncio.wait_for(receiving, _LIMIT_S) == [("chat", "late")]


async def test_proxy_states_the_lite_topics_of_a_client_again_to_a_broker_that_was_restarted(tmp_path: Path) -> None:
    keys = {"enableLmq": "true", "enableMultiDispatch": "true"}
    with Broker(tmp_path, properties=keys) as broker:
        async with running(broker) as rig:
            lite = await _lite(broker, rig)
            consumer = await lite.consumer()
            await lite.subscribe(consumer, "one", "two")
            assert (await lite.sync(consumer, wire.PARTIAL_REMOVE, "two")).code == wire.OK
            for stop in (broker.kill, broker.stop):
                await asyncio.to_thread(stop)
                await asyncio.to_thread(broker.start)
                await lite.send_after_restart("one", "after it")
                assert await lite.bodies(consumer, 1) == [("one", "after it")]
            assert await lite.bodies(consumer, 0, wait_s=0) == []


async def test_settings_tell_the_quota_and_the_longest_name(broker: Broker) -> None:
    async with running(broker, max_lite_topic_size=32) as rig:
        for quota, told in (("7", 7), ("-1", 2**31 - 1)):
            lite = await _lite(broker, rig, sub_client_quota=quota)
            settings = consumer_settings(lite.topic, lite.group, wire.LITE_PUSH_CONSUMER)
            stream, answer = await rig.client().report(settings)
            assert answer.settings.subscription.lite_subscription_quota == told
            assert answer.settings.subscription.max_lite_topic_size == 32
            assert answer.settings.client_type == wire.LITE_PUSH_CONSUMER
            stream.cancel()


async def test_lite_consumer_is_a_member_of_its_group_until_it_ends(broker: Broker, lite: Lite) -> None:
    consumer = await lite.consumer()
    group = lite.rig.proxy.consumers.group(lite.group)
    assert group is not None and group.data.message_model == "LITE_SELECTIVE"
    named = wire.HeartbeatRequest(client_type=wire.LITE_PUSH_CONSUMER, group=wire.Resource(name=lite.group))
    assert (await consumer.call("Heartbeat", named)).status.code == wire.OK
    await lite.subscribe(consumer, "chat")
    ended = wire.NotifyClientTerminationRequest(group=wire.Resource(name=lite.group))
    assert (await consumer.call("NotifyClientTermination", ended)).status.code == wire.OK
    assert lite.rig.proxy.consumers.group(lite.group) is None
    # The broker has forgotten it: as another client of the same id it gets nothing.
    again = await lite.consumer(consumer.client_id)
    await lite.send("chat", "x")
    assert await lite.bodies(again, 0, wait_s=1) == []
    await lite.subscribe(again, "chat")
    assert await lite.bodies(again, 1) == [("chat", "x")]


async def test_message_that_is_not_acknowledged_comes_again_before_later_ones(lite: Lite) -> None:
    consumer = await lite.consumer()
    await lite.subscribe(consumer, "chat")
    await lite.send("chat", "a")
    (first,) = await consumer.messages(lite.topic, lite.group, 1, invisible_s=60)
    await lite.send("chat", "b")
    assert await lite.bodies(consumer, 0, wait_s=0) == []
    request = wire.ChangeInvisibleDurationRequest(
        group=wire.Resource(name=lite.group), topic=wire.Resource(name=lite.topic), lite_topic="chat",
        receipt_handle=handle_of(first)[1], message_id=handle_of(first)[0],
    )  # fmt: skip
    request.invisible_duration.seconds = 1
    answer = await consumer.call("ChangeInvisibleDuration", request)
    assert answer.status.code == wire.OK and answer.receipt_handle
    again = await consumer.messages(lite.topic, lite.group, 2)
    assert [one.body for one in again] == [b"a", b"b"]
    assert [one.system_properties.delivery_attempt for one in again] == [2, 1]
    await lite.ack(consumer, *again)
    assert await lite.bodies(consumer, 0, wait_s=0) == []


async def test_held_message_of_a_lite_topic_is_renewed(broker: Broker) -> None:
    times = {"default_invisible_time_mills": 2000, "renew_ahead_time_millis": 1500, "renew_schedule_period_millis": 50}
    async with running(broker, **times) as rig:
        lite = await _lite(broker, rig)
        consumer = await lite.consumer()
        await lite.subscribe(consumer, "chat")
        await lite.send("chat", "a")
        (received,) = await consumer.messages(lite.topic, lite.group, 1, auto_renew=True)
        (held,) = rig.proxy.held
        async with asyncio.timeout(_LIMIT_S):
            while not held.renewals:
                await asyncio.sleep(0.02)
        assert held.receipt.lite_topic == "chat" and held.receipt.encode() != handle_of(received)[1]
        # Its client has the first handle only, and may forget to name the lite topic.
        (acknowledged,) = (await consumer.ack(lite.topic, lite.group, handle_of(received))).entries
        assert acknowledged.status.code == wire.OK
        await lite.send("chat", "b")
        assert await lite.bodies(consumer, 1) == [("chat", "b")]


async def test_dead_letter_of_a_lite_topic_is_acknowledged(lite: Lite) -> None:
    consumer = await lite.consumer()
    await lite.subscribe(consumer, "chat")
    await lite.send("chat", "bad", "good")
    (bad, good) = await consumer.messages(lite.topic, lite.group, 2)
    answer = await consumer.call(
        "ForwardMessageToDeadLetterQueue",
        wire.ForwardMessageToDeadLetterQueueRequest(
            group=wire.Resource(name=lite.group), topic=wire.Resource(name=lite.topic), lite_topic="chat",
            receipt_handle=handle_of(bad)[1], message_id=handle_of(bad)[0], max_delivery_attempts=1,
        ),
    )  # fmt: skip
    assert answer.status.code == wire.OK, answer
    await lite.ack(consumer, good)
    await lite.send("chat", "next")
    assert await lite.bodies(consumer, 1) == [("chat", "next")]


async def test_messages_of_a_client_that_dies_come_again(broker: Broker) -> None:
    async with running(broker, client_lost_timeout_millis=100, invisible_time_millis_when_clear=1) as rig:
        lite = await _lite(broker, rig)
        consumer = await lite.consumer()
        await lite.subscribe(consumer, "chat")
        await lite.send("chat", "a")
        (received,) = await consumer.messages(lite.topic, lite.group, 1, auto_renew=True)
        assert received.body == b"a"
        consumer.stream_here.cancel()  # type: ignore[attr-defined]
        async with asyncio.timeout(_LIMIT_S):
            while len(rig.proxy.clients) > 1 or len(rig.proxy.held):
                rig.proxy.clients.expire()
                await asyncio.sleep(0.02)
        other = await lite.consumer()
        await lite.subscribe(other, "chat")
        assert await lite.bodies(other, 1) == [("chat", "a")]


async def test_consumer_hears_that_another_one_took_its_lite_topic(broker: Broker, rig: Rig) -> None:
    lite = await _lite(broker, rig, sub_model="Exclusive")
    first, second = await lite.consumer(), await lite.consumer()
    names = [f"chat-{number}" for number in range(200)]
    await lite.subscribe(first, *names)
    await lite.subscribe(second, *names)
    stream: Any = first.stream_here  # type: ignore[attr-defined]
    async with asyncio.timeout(_LIMIT_S):
        told = [(await stream.read()).notify_unsubscribe_lite_command.lite_topic for _ in names]
    assert sorted(told) == sorted(names)
    await lite.send("chat-1", "x")
    assert await lite.bodies(second, 1) == [("chat-1", "x")]
    assert await lite.bodies(first, 0, wait_s=0) == []


async def test_routes_and_assignments_of_a_lite_parent(broker: Broker, rig: Rig) -> None:
    lite = await _lite(broker, rig)
    ordered = await create_group(
        broker, attributes={"+lite.bind.topic": lite.topic}, consume_message_orderly=True
    )  # fmt: skip
    topic = wire.Resource(name=lite.topic)
    route = await lite.producer.call("QueryRoute", wire.QueryRouteRequest(topic=topic))
    assert {tuple(queue.accept_message_types) for queue in route.message_queues} == {(wire.LITE,)}
    for group in (lite.group, ordered):
        asked = wire.QueryAssignmentRequest(topic=topic, group=wire.Resource(name=group))
        answer = await lite.producer.call("QueryAssignment", asked)
        assert [one.message_queue.id for one in answer.assignments] == [-1]


async def test_messages_of_one_lite_topic_go_to_one_queue(broker: Broker, rig: Rig) -> None:
    lite = await _lite(broker, rig)
    # Java's hash of "chat" is 3052376, and Guava's consistent hash of it into 2 buckets says where.
    messages = [wire.Message(body=b"x") for _ in range(4)]
    for number, message in enumerate(messages):
        message.topic.name = lite.topic
        message.system_properties.lite_topic = "chat"
        message.system_properties.message_type = wire.LITE
        message.system_properties.message_id = f"one-queue-{number}"
    answer = await lite.producer.call("SendMessage", wire.SendMessageRequest(messages=messages))
    assert answer.status.code == wire.OK
    assert [entry.offset for entry in answer.entries] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["white space", "x" * 65, "ümlaut", "a$b", " "])
async def test_illegal_names_of_lite_topics_are_refused(lite: Lite, name: str) -> None:
    consumer = await lite.consumer()
    for action in (wire.PARTIAL_ADD, wire.COMPLETE_ADD):
        assert (await lite.sync(consumer, action, name)).code == wire.ILLEGAL_LITE_TOPIC
    answer = await lite.producer.send(lite.topic, "x", lite_topic=name, message_type=wire.LITE)
    assert answer.status.code == wire.ILLEGAL_LITE_TOPIC
    names = {"group": wire.Resource(name=lite.group), "topic": wire.Resource(name=lite.topic)}
    entries = [wire.AckMessageEntry(message_id="id", receipt_handle="handle", lite_topic=name)]
    (one,) = (await consumer.call("AckMessage", wire.AckMessageRequest(entries=entries, **names))).entries
    assert one.status.code == wire.ILLEGAL_LITE_TOPIC
    handle = "0 1 2 999 0 broker-a 0 0 0"
    changed = wire.ChangeInvisibleDurationRequest(lite_topic=name, receipt_handle=handle, **names)
    assert (await consumer.call("ChangeInvisibleDuration", changed)).status.code == wire.ILLEGAL_LITE_TOPIC


async def test_group_and_client_must_both_be_of_lite_topics(broker: Broker, lite: Lite) -> None:
    other, regular = await create_topic(broker, "LITE"), await create_group(broker)
    for topic, group, kind, why in (
        (lite.topic, regular, wire.LITE_PUSH_CONSUMER, "regular group cannot use LITE mode"),
        (lite.topic, lite.group, wire.PUSH_CONSUMER, "lite group must use LITE mode"),
        (other, lite.group, wire.LITE_SIMPLE_CONSUMER, "expected to bind topic"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await lite.rig.client().report(consumer_settings(topic, group, kind))
        assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT and why in (ended.value.details() or "")
    consumer = await lite.consumer()
    for topic, group, code in (
        (lite.topic, regular, wire.ILLEGAL_CONSUMER_GROUP),
        (other, lite.group, wire.ILLEGAL_TOPIC),
        ("no spaces", lite.group, wire.ILLEGAL_TOPIC),
    ):
        status = await Lite(lite.rig, topic, group).sync(consumer, wire.PARTIAL_ADD, "chat")
        assert status.code == code, status


async def test_too_many_subscriptions_are_refused(broker: Broker, rig: Rig) -> None:
    lite = await _lite(broker, rig, sub_client_quota="2")
    consumer = await lite.consumer()
    # Clients count themselves; the proxy refuses one request with far too many.
    names = [f"chat-{number}" for number in range(303)]
    await lite.subscribe(consumer, *names[:-1])
    for action in (wire.PARTIAL_ADD, wire.COMPLETE_ADD, wire.PARTIAL_REMOVE):
        status = await lite.sync(consumer, action, *names)
        assert status.code == wire.LITE_SUBSCRIPTION_QUOTA_EXCEEDED and "exceeded: 2" in status.message, status


async def test_subscriptions_are_limited_in_rate(broker: Broker) -> None:
    async with running(broker, max_sync_lite_subscription_rate=1) as rig:
        lite = await _lite(broker, rig)
        consumer = await lite.consumer()
        codes = [(await lite.sync(consumer, wire.PARTIAL_ADD, "a")).code for _ in range(5)]
        assert codes[0] == wire.OK and wire.TOO_MANY_REQUESTS in codes
        assert (await lite.sync(consumer, wire.COMPLETE_ADD, "a")).code == wire.OK


async def test_consumer_with_too_many_messages_gets_no_more(broker: Broker) -> None:
    async with running(broker, max_lite_renew_num_per_channel=2) as rig:
        assert rig.proxy.config.max_lite_renew_num_per_channel < MAX_HELD
        lite = await _lite(broker, rig)
        consumer = await lite.consumer()
        await lite.subscribe(consumer, "chat")
        await lite.send("chat", "a", "b", "c")
        received = await consumer.messages(lite.topic, lite.group, 3, auto_renew=True)
        parts = await consumer.receive(lite.topic, lite.group, wait_s=0, auto_renew=True)
        assert parts[0].status.code == wire.FORBIDDEN and "too many unacked messages" in parts[0].status.message
        await lite.ack(consumer, *received)
        await lite.send("chat", "d")
        assert await lite.bodies(consumer, 1, auto_renew=True) == [("chat", "d")]


async def test_types_of_messages_and_topics_must_agree(broker: Broker, lite: Lite, topic: str) -> None:
    for answer in (
        await lite.producer.send(topic, "x", lite_topic="chat", message_type=wire.LITE),
        await lite.producer.send(lite.topic, "x", message_type=wire.NORMAL),
        await lite.producer.send(lite.topic, "x", lite_topic="chat", message_group="g"),
    ):
        assert answer.status.code == wire.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, answer


async def test_access_control_asks_for_group_and_parent(broker: Broker, tmp_path: Path) -> None:
    auth = AuthSettings(authentication_enabled=True, authorization_enabled=True)
    async with running(broker, auth=auth, auth_config_path=str(user_folder(tmp_path))) as rig:
        lite = await _lite(broker, rig)
        signed(lite.producer, "root", "secret")
        reader, nobody = signed(rig.client(), "reader", "readers"), signed(rig.client(), "nobody", "nothing")
        settings = consumer_settings(lite.topic, lite.group, wire.LITE_PUSH_CONSUMER)
        _, answer = await reader.report(settings)
        assert answer.status.code == wire.OK
        _, refused = await nobody.report(settings)
        assert refused.status.code in (wire.FORBIDDEN, wire.UNAUTHORIZED)
        await lite.subscribe(reader, "chat")
        assert (await lite.sync(nobody, wire.PARTIAL_ADD, "chat")).code == refused.status.code
        assert (await lite.sync(rig.client(), wire.PARTIAL_ADD, "chat")).code != wire.OK
        answer = await reader.send(lite.topic, "x", lite_topic="chat", message_type=wire.LITE)
        assert answer.status.code == refused.status.code
        await lite.send("chat", "x")
        assert await lite.bodies(reader, 1) == [("chat", "x")]


async def test_remoting_clients_send_to_lite_topics(broker: Broker, lite: Lite) -> None:
    caller = Caller(lite.rig)
    consumer = await lite.consumer()
    await lite.subscribe(consumer, "chat")
    fields = caller.send_fields(lite.topic, properties="__LITE_TOPIC\x01chat\x02")
    answer = await caller.ask(RequestCode.SEND_MESSAGE_V2, fields, b"by remoting")
    assert answer.code == 0, answer.remark
    assert await lite.bodies(consumer, 1) == [("chat", "by remoting")]
    await caller.client.close()


async def test_brokers_know_the_group_of_lite_consumers(broker: Broker) -> None:
    async with running(broker, register_consumers_at_brokers=True) as rig, broker_tool(rig) as tool:
        lite = await _lite(broker, rig)
        await lite.consumer()
        header = GetConsumerConnectionListRequestHeader(consumer_group=lite.group)
        async with asyncio.timeout(_LIMIT_S):
            while (found := await tool.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).code:
                await asyncio.sleep(0.05)
        assert json.loads(found.body)["messageModel"] == "LITE_SELECTIVE"


async def _all_of(lite: Lite, consumer: GrpcClient, broker_name: str) -> list[tuple[str, str]]:
    """Receive and acknowledge everything that a broker has."""
    found: list[tuple[str, str]] = []
    request = receive_request(lite.topic, lite.group, wait_s=0)
    request.message_queue.broker.name = broker_name
    while True:
        parts = await consumer.stream("ReceiveMessage", request)
        received = [part.message for part in parts if part.HasField("message")]
        if not received:
            return found
        found += [(one.system_properties.lite_topic, one.body.decode()) for one in received]
        await lite.ack(consumer, *received)


async def test_subscriptions_reach_every_broker_of_the_parent(broker: Broker, tmp_path: Path) -> None:
    light = {"enableLmq": "true", "enableMultiDispatch": "true"}
    second = {**light, "namesrvAddr": broker.namesrv, "brokerName": "second-of-lite"}
    with Broker(tmp_path, properties=second) as other:
        async with running(broker) as rig:
            lite = await _lite(broker, rig)
            await create_topic(other, "LITE", name=lite.topic)
            await create_group(other, attributes={"+lite.bind.topic": lite.topic}, name=lite.group)
            await rig.proxy.brokers.instance.refresh_route(lite.topic)
            names = [f"chat-{number}" for number in range(20)]
            consumer = await lite.consumer()
            await lite.subscribe(consumer, *names)
            for name in names:
                await lite.send(name, "one", "two")
            found: list[tuple[str, str]] = []
            for broker_name in await rig.proxy.brokers.readable(lite.topic):
                before = len(found)
                found += await _all_of(lite, consumer, broker_name)
                assert len(found) > before, "a broker had nothing"
            assert len(found) == 40
            for name in names:
                assert [body for lite_topic, body in found if lite_topic == name] == ["one", "two"]


def _lite_change(lite: Lite, client_id: str, action: str, *names: str) -> bytes:
    change = LiteSubscriptionDTO(LiteSubscriptionAction(action), client_id, lite.group, lite.topic, list(names))
    return dumps(LiteSubscriptionCtlRequestBody([change]))


async def _pop(caller: Caller, lite: Lite, client_id: str) -> ReceivedResponse:
    header = PopLiteMessageRequestHeader(
        client_id=client_id, consumer_group=lite.group, topic=lite.topic, max_msg_num=8, invisible_time=60_000,
        poll_time=5_000, born_time=0,
    )  # fmt: skip
    return await caller.ask(RequestCode.POP_LITE_MESSAGE, header)


async def test_remoting_client_consumes_lite_topics_at_the_proxy(broker: Broker, lite: Lite) -> None:
    caller = Caller(lite.rig)
    await caller.route(lite.topic)
    await caller.heartbeat("one", lite.group, lite.topic)
    code = RequestCode.LITE_SUBSCRIPTION_CTL
    assert (await caller.ask(code, None, _lite_change(lite, "one", "PARTIAL_ADD", "chat"))).code == 0
    refused = await caller.ask(code, None, b"")
    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    await lite.send("chat", "a")
    answer = await _pop(caller, lite, "one")
    assert answer.code == 0, answer.remark
    header = answer.header(PopLiteMessageResponseHeader)
    (popped,) = lite_popped_messages(answer.body, header, lite.topic, "broker", 0.0)
    handle = popped.handle
    ack = AckMessageRequestHeader(
        consumer_group=lite.group, topic=lite.topic, queue_id=0, offset=handle.queue_offset, lite_topic="chat",
        extra_info=handle.encode(),
    )  # fmt: skip
    assert (await caller.ask(RequestCode.ACK_MESSAGE, ack)).code == 0
    await caller.client.close()


async def test_remoting_client_of_an_exclusive_group_hears_that_a_lite_topic_was_taken(
    broker: Broker, rig: Rig
) -> None:
    lite, heard = await _lite(broker, rig, sub_model="Exclusive"), asyncio.Queue[str]()

    def taken(request: Request[NotifyUnsubscribeLiteRequestHeader]) -> None:
        heard.put_nowait(request.header.lite_topic)

    caller = Caller(rig)
    caller.client = RemotingClient(
        [
            Route(
                RequestCode.NOTIFY_UNSUBSCRIBE_LITE, NotifyUnsubscribeLiteRequestHeader, taken, Resource.NONE,
                Action.NONE,
            )
        ]
    )  # fmt: skip
    await caller.heartbeat("one", lite.group, lite.topic)
    code = RequestCode.LITE_SUBSCRIPTION_CTL
    assert (await caller.ask(code, None, _lite_change(lite, "one", "PARTIAL_ADD", "a", "b"))).code == 0
    assert (await caller.ask(code, None, _lite_change(lite, "two", "PARTIAL_ADD", "b"))).code == 0
    assert await asyncio.wait_for(heard.get(), _LIMIT_S) == "b"
    await caller.client.close()
