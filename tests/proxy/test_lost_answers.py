"""A receive's answer that was lost with its connection: the message comes back although the client lives."""

import asyncio

import grpc

from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.proxy.rig import GrpcClient, Rig, consumer_settings, handle_of, receive_request, running

_SETTINGS = {
    "client_lost_timeout_millis": 1500, "renew_schedule_period_millis": 50, "default_invisible_time_mills": 60_000,
}  # fmt: skip


async def _beating(client: GrpcClient, group: str) -> None:
    while True:
        answer = await client.call("Heartbeat", wire.HeartbeatRequest(group=wire.Resource(name=group)))
        assert answer.status.code == wire.OK
        await asyncio.sleep(0.2)


async def _received(rig: Rig, topic: str, group: str) -> tuple[GrpcClient, wire.Message]:
    """A client whose telemetry stream has a connection of its own, and what it received over another one."""
    options = [("grpc.use_local_subchannel_pool", 1)]  # else the two share one connection
    own = grpc.aio.insecure_channel(f"127.0.0.1:{rig.port}", options=options)
    talking, receiving = rig.client("alive"), rig.client("alive", channel=own)
    await talking.report(consumer_settings(topic, group))
    await receiving.receive(topic, group, wait_s=0)
    await talking.send(topic, "lost")
    (message,) = await receiving.messages(topic, group, 1, auto_renew=True)
    await receiving.close()
    return talking, message


async def test_message_comes_back_if_its_connection_is_not_seen_again(broker: Broker, topic: str) -> None:
    async with running(broker, **_SETTINGS) as rig:
        client, _ = await _received(rig, topic, "group-lost")
        beating = asyncio.ensure_future(_beating(client, "group-lost"))
        (again,) = await rig.client().messages(topic, "group-lost", 1, wait_s=2)
        assert again.body == b"lost" and not beating.done() and len(rig.proxy.held) == 0
        beating.cancel()


async def test_message_stays_with_a_client_whose_connection_lives(broker: Broker, topic: str) -> None:
    async with running(broker, **_SETTINGS) as rig:
        client, other = rig.client(), rig.client()
        await client.report(consumer_settings(topic, "group-kept"))
        await client.receive(topic, "group-kept", wait_s=0)
        await client.send(topic, "kept")
        (message,) = await client.messages(topic, "group-kept", 1, auto_renew=True)
        beating = asyncio.ensure_future(_beating(client, "group-kept"))
        parts = await other.stream("ReceiveMessage", receive_request(topic, "group-kept", wait_s=5))
        assert parts[0].status.code == wire.MESSAGE_NOT_FOUND
        beating.cancel()
        assert (await client.ack(topic, "group-kept", handle_of(message))).status.code == wire.OK


async def test_short_invisible_times_are_renewed_until_it_is_known(broker: Broker, topic: str) -> None:
    settings = _SETTINGS | {
        "client_lost_timeout_millis": 4000, "default_invisible_time_mills": 2000, "renew_ahead_time_millis": 1500,
    }  # fmt: skip
    async with running(broker, **settings) as rig:
        _, message = await _received(rig, topic, "group-short")
        held = next(iter(rig.proxy.held))
        await asyncio.sleep(3)
        assert held.receipt.encode() != handle_of(message)[1]
        (again,) = await rig.client().messages(topic, "group-short", 1, wait_s=2)
        assert again.body == b"lost"
