"""Telemetry, heartbeats and the end of clients; handles are renewed while a client lives."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from proxy.config import GRPCIO, H2CORN
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.client import GetProducerConnectionListRequestHeader
from sprocket.testing import Broker
from tests.proxy.rig import (
    Rig,
    consumer_settings,
    create_group,
    create_topic,
    handle_of,
    message,
    producer_settings,
    receive_request,
    running,
)
from tests.waiting import until


def _heartbeat(group: str) -> wire.HeartbeatRequest:
    return wire.HeartbeatRequest(group=wire.Resource(name=group), client_type=wire.PUSH_CONSUMER)


async def test_settings_of_a_consumer_have_its_groups_rules(rig: Rig, broker: Broker, topic: str) -> None:
    group = await create_group(broker, consume_message_orderly=True, retry_max_times=4)
    _, answer = await rig.client().report(consumer_settings(topic, group))
    assert answer.status.code == wire.OK and answer.settings.subscription.fifo
    assert answer.settings.backoff_policy.max_attempts == 5
    assert len(answer.settings.backoff_policy.customized_backoff.next) == 18
    assert answer.settings.subscription.receive_batch_size == 32


async def test_settings_of_a_producer_have_the_proxys_limits(rig: Rig, topic: str) -> None:
    _, answer = await rig.client().report(producer_settings(topic))
    assert answer.settings.publishing.max_body_size == 4 * 1024 * 1024
    assert answer.settings.publishing.validate_message_type
    assert answer.settings.backoff_policy.max_attempts == 3


async def test_first_receive_needs_no_settings(rig: Rig, topic: str) -> None:
    """RocketMQ's proxy fails here until it has read what the client reported."""
    client = rig.client()
    parts = await client.receive(topic, "group-new", wait_s=0, auto_renew=True)
    assert parts[0].status.code == wire.MESSAGE_NOT_FOUND


@pytest.mark.parametrize("server", [H2CORN, GRPCIO])
async def test_a_stream_that_its_client_closes_after_its_settings_still_brings_the_answer(
    broker: Broker, topic: str, server: str
) -> None:
    async with running(broker, grpc_server=server) as rig:
        stream = rig.client().telemetry()
        await stream.write(wire.TelemetryCommand(settings=producer_settings(topic)))
        await stream.done_writing()
        assert [part.status.code async for part in stream] == [wire.OK]


async def test_heartbeat_of_an_unknown_client(rig: Rig) -> None:
    answer = await rig.client().call("Heartbeat", _heartbeat("group"))
    assert answer.status.code == wire.UNRECOGNIZED_CLIENT_TYPE
    assert not len(rig.proxy.clients)  # it holds nothing


def _out_of_range() -> wire.Settings:
    settings = consumer_settings("topic", "group")
    settings.request_timeout.seconds = -(2**63)  # no JSON, as which other proxies are told of settings
    return settings


@pytest.mark.parametrize(
    "settings",
    [_out_of_range(), wire.Settings(), consumer_settings("topic", "no spaces"), producer_settings("no spaces")],
)
async def test_settings_that_are_none_end_the_stream(rig: Rig, settings: wire.Settings) -> None:
    stream = rig.client().telemetry()
    await stream.write(wire.TelemetryCommand(settings=settings))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        while await stream.read() is not grpc.aio.EOF:
            pass
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_clients_of_newer_kinds_are_refused_by_name(rig: Rig, topic: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await rig.client().report(consumer_settings(topic, "group", 99))
    assert "clients of type 99 are not supported" in (ended.value.details() or "")


async def test_stream_without_settings_is_closed(broker: Broker) -> None:
    async with running(broker, telemetry_settings_timeout_millis=100) as rig:
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await rig.client().telemetry().read()
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_newest_stream_of_a_client_counts(rig: Rig, topic: str) -> None:
    client = rig.client()
    first, _ = await client.report(consumer_settings(topic, "group"))
    second, _ = await client.report(consumer_settings(topic, "group"))
    assert await first.read() is grpc.aio.EOF
    assert len(rig.proxy.clients) == 1
    second.cancel()


async def _held(rig: Rig, client: Any, topic: str, group: str) -> wire.Message:
    """A message that the client works on, and that the proxy renews."""
    await client.receive(topic, group, wait_s=0)
    await client.send(topic, "held")
    (received,) = await client.messages(topic, group, 1, auto_renew=True)
    assert len(rig.proxy.held) == 1
    return received


async def test_message_is_renewed_while_its_client_works(broker: Broker, topic: str) -> None:
    settings = {
        "default_invisible_time_mills": 2000, "renew_schedule_period_millis": 200, "renew_ahead_time_millis": 1500,
    }  # fmt: skip
    async with running(broker, **settings) as rig:
        client, other = rig.client(), rig.client()
        stream, _ = await client.report(consumer_settings(topic, "group-renew"))
        received = await _held(rig, client, topic, "group-renew")
        await asyncio.sleep(3)
        assert not await other.messages(topic, "group-renew", 1, wait_s=0)
        acked = await client.ack(topic, "group-renew", handle_of(received))
        assert acked.status.code == wire.OK  # with the handle that it got, which was replaced meanwhile
        assert not len(rig.proxy.held)
        stream.cancel()


async def test_handle_is_kept_if_no_broker_answers(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        topic = await create_topic(broker)
        settings = {
            "default_invisible_time_mills": 15_000, "renew_schedule_period_millis": 100,
            "renew_ahead_time_millis": 14_500,
        }  # fmt: skip
        async with running(broker, **settings) as rig:
            client = rig.client()
            stream, _ = await client.report(consumer_settings(topic, "group-kept"))
            received = await _held(rig, client, topic, "group-kept")
            await until(lambda: all(held.renewals for held in rig.proxy.held))  # the client's handle is an old one now
            broker.kill()
            refused = await client.ack(topic, "group-kept", handle_of(received))
            assert refused.status.code in (wire.INTERNAL_SERVER_ERROR, wire.PROXY_TIMEOUT)
            assert len(rig.proxy.held) == 1
            broker.start()
            acked = await client.ack(topic, "group-kept", handle_of(received))
            assert acked.status.code == wire.OK and not len(rig.proxy.held)
            stream.cancel()


async def test_message_of_a_client_that_ends_is_released(rig: Rig, topic: str) -> None:
    client, other = rig.client(), rig.client()
    _, _ = await client.report(consumer_settings(topic, "group-end"))
    await _held(rig, client, topic, "group-end")
    request = wire.NotifyClientTerminationRequest(group=wire.Resource(name="group-end"))
    assert (await client.call("NotifyClientTermination", request)).status.code == wire.OK
    assert len(await other.messages(topic, "group-end", 1)) == 1


async def test_message_of_a_client_that_dies_is_released(broker: Broker, topic: str) -> None:
    async with running(broker, client_lost_timeout_millis=300) as rig:
        client, other = rig.client(), rig.client()
        stream, _ = await client.report(consumer_settings(topic, "group-dead"))
        await _held(rig, client, topic, "group-dead")
        stream.cancel()
        await until(lambda: rig.proxy.clients.expire() == [client.client_id])
        assert not len(rig.proxy.held)
        assert len(await other.messages(topic, "group-dead", 1)) == 1


async def test_receive_that_is_cancelled_loses_nothing(rig: Rig, topic: str) -> None:
    client, other = rig.client(), rig.client()
    await client.receive(topic, "group-cancel", wait_s=0)
    polling = client.open_stream("ReceiveMessage", receive_request(topic, "group-cancel", wait_s=10, invisible_s=60))
    await asyncio.sleep(0.3)
    polling.cancel()
    await asyncio.sleep(0.2)
    await other.send(topic, "later")  # the broker gives it to the pop of the call that has ended
    assert len(await other.messages(topic, "group-cancel", 1)) == 1


async def test_stream_that_is_not_read_loses_nothing(broker: Broker, topic: str) -> None:
    async with running(broker, grpc_write_timeout_millis=300) as rig:
        client, other = rig.client(), rig.client()
        await client.receive(topic, "group-unread", wait_s=0)
        for number in range(8):
            await other.send(topic, f"{number}-" + "x" * 1_000_000)
        options = [("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0)]
        lazy = rig.client(channel=grpc.aio.insecure_channel(f"127.0.0.1:{rig.port}", options=options))
        stream = lazy.open_stream("ReceiveMessage", receive_request(topic, "group-unread", invisible_s=60))
        await stream.read()
        await asyncio.sleep(1)
        got: set[str] = set()
        async with asyncio.timeout(30):
            while len(got) < 8:
                got |= {handle_of(one)[0] for one in await other.messages(topic, "group-unread", 1)}
        stream.cancel()


async def test_idle_streams_hold_nothing_after_they_end(rig: Rig, topic: str) -> None:
    streams = []
    for number in range(200):
        client = rig.client(f"idle-{number}", channel=rig.client("shared").channel if not number else streams[0][0])
        stream, _ = await client.report(producer_settings(topic))
        streams.append((client.channel, stream))
    assert len(rig.proxy.clients) == 200
    for _, stream in streams:
        stream.cancel()
    await until(lambda: all(one.stream is None for one in rig.proxy.clients))


async def test_orphaned_transaction_is_recovered(rig: Rig, broker: Broker) -> None:
    topic = await create_topic(broker, "TRANSACTION")
    producer, consumer = rig.client(), rig.client()
    stream, _ = await producer.report(producer_settings(topic))
    await consumer.receive(topic, "group-orphan", wait_s=0)
    sent = await producer.send(topic, "orphan", message_type=wire.TRANSACTION)
    assert sent.status.code == wire.OK and sent.entries[0].transaction_id
    async with asyncio.timeout(40):
        command = await stream.read()
    asked = command.recover_orphaned_transaction_command
    assert asked.message.body == b"orphan" and asked.message.topic.name == topic
    ended = await producer.call("EndTransaction", _end(topic, asked.transaction_id, wire.COMMIT))
    assert ended.status.code == wire.OK
    assert [one.body for one in await consumer.messages(topic, "group-orphan", 1)] == [b"orphan"]
    stream.cancel()


async def test_brokers_know_transactional_producers_while_they_are_connected(broker: Broker) -> None:
    topic = await create_topic(broker, "TRANSACTION")
    remoting = RemotingClient()
    async with running(broker, transaction_heartbeat_period_second=1) as rig:

        async def is_known() -> bool:
            header = GetProducerConnectionListRequestHeader(producer_group=topic)
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            return (await remoting.invoke(broker.address, code, header)).code == 0

        client = rig.client()
        await client.report(producer_settings(topic))
        await until_async(is_known)
        await client.call("NotifyClientTermination", wire.NotifyClientTerminationRequest())

        async def is_unknown() -> bool:
            return not await is_known()

        # Otherwise the broker would close the proxy's connection when the heartbeats of the group expire.
        await until_async(is_unknown)
    await remoting.close()


async def test_transactions_end_at_any_proxy(rig: Rig, broker: Broker) -> None:
    topic = await create_topic(broker, "TRANSACTION")
    client = rig.client()
    await client.receive(topic, "group-tx", wait_s=0)
    ids = {}
    for body in ("commit", "rollback"):
        ids[body] = (await client.send(topic, body, message_type=wire.TRANSACTION)).entries[0].transaction_id
    async with running(broker) as second:
        other = second.client()
        for body, outcome in (("commit", wire.COMMIT), ("rollback", wire.ROLLBACK)):
            assert (await other.call("EndTransaction", _end(topic, ids[body], outcome))).status.code == wire.OK
        assert [one.body for one in await other.messages(topic, "group-tx", 1)] == [b"commit"]


@pytest.mark.parametrize(
    ("transaction_id", "code"),
    [
        ("", wire.INVALID_TRANSACTION_ID),
        ("unknown", wire.INTERNAL_SERVER_ERROR),
        ("a~bm8=", wire.INTERNAL_SERVER_ERROR),
    ],
)
async def test_transactions_that_nobody_began(rig: Rig, topic: str, transaction_id: str, code: int) -> None:
    answer = await rig.client().call("EndTransaction", _end(topic, transaction_id, wire.COMMIT))
    assert answer.status.code == code


def _end(topic: str, transaction_id: str, resolution: int) -> wire.EndTransactionRequest:
    return wire.EndTransactionRequest(
        topic=wire.Resource(name=topic), message_id="id", transaction_id=transaction_id, resolution=resolution
    )


async def test_delayed_message_is_recalled(rig: Rig, broker: Broker) -> None:
    topic = await create_topic(broker, "DELAY")
    client = rig.client()
    await client.receive(topic, "group-delay", wait_s=0)
    now_s = rig.proxy.brokers.instance.clock.wall_ms() // 1000
    answers = [await client.send(topic, body, delivery_timestamp={"seconds": now_s + 4}) for body in ("kept", "gone")]
    handle = answers[1].entries[0].recall_handle
    request = wire.RecallMessageRequest(topic=wire.Resource(name=topic), recall_handle=handle)
    recalled = await client.call("RecallMessage", request)
    assert recalled.status.code == wire.OK and recalled.message_id == answers[1].entries[0].message_id
    received = await client.messages(topic, "group-delay", 1)
    assert [one.body for one in received] == [b"kept"]
    assert received[0].system_properties.message_type == wire.DELAY
    request.recall_handle = "none"
    assert (await client.call("RecallMessage", request)).status.code == wire.INTERNAL_SERVER_ERROR


async def test_dead_letters(rig: Rig, broker: Broker, topic: str) -> None:
    group = await create_group(broker)
    client = rig.client()
    await client.receive(topic, group, wait_s=0)
    await client.send(topic, "bad")
    (received,) = await client.messages(topic, group, 1)
    message_id, handle = handle_of(received)
    request = wire.ForwardMessageToDeadLetterQueueRequest(
        group=wire.Resource(name=group), topic=wire.Resource(name=topic), receipt_handle=handle, message_id=message_id
    )
    assert (await client.call("ForwardMessageToDeadLetterQueue", request)).status.code == wire.OK
    assert not await client.messages(topic, group, 1, wait_s=0)
    letters = await _pulled(client, rig, f"%DLQ%{group}", group)
    assert [one.body for one in letters] == [b"bad"]


async def test_message_without_attempts_left_becomes_a_dead_letter(rig: Rig, broker: Broker, topic: str) -> None:
    group = await create_group(broker, retry_max_times=0)
    client = rig.client()
    await client.receive(topic, group, wait_s=0)
    await client.send(topic, "bad")
    assert len(await client.messages(topic, group, 1, invisible_s=1)) == 1
    await asyncio.sleep(2.5)
    assert not await client.messages(topic, group, 1, wait_s=1)
    await until_async(lambda: _pulled(client, rig, f"%DLQ%{group}", group))


async def until_async(work: Any, limit_s: float = 15) -> Any:
    async with asyncio.timeout(limit_s):
        while not (found := await work()):
            await asyncio.sleep(0.1)
    return found


async def _pulled(client: Any, rig: Rig, topic: str, group: str) -> list[wire.Message]:
    route = await client.call("QueryRoute", wire.QueryRouteRequest(topic=wire.Resource(name=topic)))
    found: list[wire.Message] = []
    for queue in route.message_queues:
        request = wire.PullMessageRequest(group=wire.Resource(name=group), message_queue=queue, batch_size=8)
        found += [part.message for part in await client.stream("PullMessage", request) if part.HasField("message")]
    return found


async def test_offsets(rig: Rig, broker: Broker) -> None:
    topic, group = await create_topic(broker, queues=1), await create_group(broker)
    client = rig.client()
    await client.send(topic, "a", "b", "c")
    route = await client.call("QueryRoute", wire.QueryRouteRequest(topic=wire.Resource(name=topic)))
    queue = route.message_queues[0]
    named = {"group": wire.Resource(name=group), "message_queue": queue}
    none = await client.call("GetOffset", wire.GetOffsetRequest(**named))
    assert none.status.code in (wire.OFFSET_NOT_FOUND, wire.OK)
    assert (await client.call("UpdateOffset", wire.UpdateOffsetRequest(offset=2, **named))).status.code == wire.OK
    assert (await client.call("GetOffset", wire.GetOffsetRequest(**named))).offset == 2
    for policy, offset in ((wire.BEGINNING, 0), (wire.END, 3)):
        request = wire.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy)
        assert (await client.call("QueryOffset", request)).offset == offset
    parts = await client.stream("PullMessage", wire.PullMessageRequest(offset=1, batch_size=8, **named))
    assert [part.message.body for part in parts if part.HasField("message")] == [b"b", b"c"]
    assert parts[0].status.code == wire.OK and parts[-1].next_offset == 3
    for at_s, offset in ((0, 0), (4_000_000_000, 3)):
        request = wire.QueryOffsetRequest(message_queue=queue, query_offset_policy=wire.TIMESTAMP)
        request.timestamp.seconds = at_s
        assert (await client.call("QueryOffset", request)).offset == offset
    nothing = await client.stream("PullMessage", wire.PullMessageRequest(offset=3, batch_size=8, **named))
    assert nothing[0].status.code == wire.MESSAGE_NOT_FOUND and nothing[-1].next_offset == 3
    waiting = wire.PullMessageRequest(offset=3, batch_size=8, **named)
    waiting.long_polling_timeout.seconds = 20
    waiting.filter_expression.CopyFrom(wire.FilterExpression(type=wire.TAG, expression="Aa"))
    polling = asyncio.ensure_future(client.stream("PullMessage", waiting))
    await asyncio.sleep(0.2)
    await client.call("SendMessage", wire.SendMessageRequest(messages=[
        message(topic, "other", tag="BB"),  # Java's hash of both tags is the same
        message(topic, "wanted", tag="Aa"),
    ]))  # fmt: skip
    found = [part.message.body for part in await polling if part.HasField("message")]
    assert found == [b"wanted"]
    refused = await client.stream("PullMessage", wire.PullMessageRequest(offset=-1, **named))
    assert refused[0].status.code == wire.ILLEGAL_OFFSET


async def test_nothing_is_renewed_for_a_client_that_ended_while_it_was_waiting(rig: Rig, topic: str) -> None:
    client, group = rig.client(), "group-ended-waiting"
    await client.report(consumer_settings(topic, group))
    await client.receive(topic, group, wait_s=0)
    called_at = _called_at(rig, client.client_id)
    waiting = asyncio.ensure_future(client.receive(topic, group, wait_s=20, auto_renew=True))
    await until(lambda: _called_at(rig, client.client_id) != called_at)
    ended = wire.NotifyClientTerminationRequest(group=wire.Resource(name=group))
    assert (await client.call("NotifyClientTermination", ended)).status.code == wire.OK
    await rig.client().send(topic, "late")
    assert any(part.HasField("message") for part in await waiting)
    assert not rig.proxy.held.count_of(client.client_id)


def _called_at(rig: Rig, client_id: str) -> float:
    client = rig.proxy.clients.get(client_id)
    assert client is not None
    return client.called_at
