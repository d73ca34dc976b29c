"""A client that does not read harms nobody: others are served, and what is kept for it is bounded."""

import asyncio
from typing import Any

import pytest

from proxy.clients.telemetry_stream import MAX_WAITING
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.proxy.http2_client import connect
from tests.proxy.rig import GrpcClient, Rig, consumer_settings, receive_request, running
from tests.waiting import until

_CALLS = 64
_MESSAGES = 40
_BODY = "x" * 40_000
_LARGE_MESSAGES = 12
_MAX_ROUNDS = 80


async def _unread_receives(port: int, topic: str, group: str) -> Any:
    """A connection whose receives ask for many times more than it lets the proxy send."""
    lazy = await connect(port, reads=False)
    request = receive_request(topic, group, batch_size=32, wait_s=20, invisible_s=60).SerializeToString()
    for _ in range(_CALLS):
        lazy.call("ReceiveMessage", request, "lazy")
    return lazy


async def _served(client: GrpcClient, topic: str, group: str) -> None:
    """Check that a client can send, receive and acknowledge."""
    assert (await client.send(topic, "small")).status.code == wire.OK
    (received,) = await client.messages(topic, group, 1, batch_size=1)
    system = received.system_properties
    assert (await client.ack(topic, group, (system.message_id, system.receipt_handle))).status.code == wire.OK


async def test_receives_that_are_not_read_harm_no_other_client(broker: Broker, topic: str) -> None:
    async with running(broker) as rig:
        client = rig.client()
        for group in ("group-lazy", "group-other"):
            await client.receive(topic, group, wait_s=0)
        lazy = await _unread_receives(rig.port, topic, "group-lazy")
        for number in range(_MESSAGES):
            await client.send(topic, f"{number}-{_BODY}")
        for _ in range(3):
            await _served(client, topic, "group-other")
        assert not lazy.is_closed
        lazy.close()


async def test_receives_beyond_what_may_wait_pop_nothing_or_release_it_uncounted(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each brings 1 MB; four of them may wait, beside what the server takes before the client reads.

    Messages whose receives count although no client gets them would become dead letters.
    """
    long: dict[str, Any] = {"grpc_write_timeout_millis": 600_000, "client_lost_timeout_millis": 600_000}
    async with running(broker, grpc_max_in_flight_size=16_400_000, **long) as rig:
        other = rig.client()
        await other.receive(topic, "group-lazy", wait_s=0)
        for number in range(_LARGE_MESSAGES):
            await other.send(topic, f"{number}-{'x' * 1_000_000}")
        calls, pops = _counted(monkeypatch, rig.proxy.clients, "seen"), _counted(monkeypatch, rig.proxy.brokers, "pop")
        lazy = await connect(rig.port, reads=False)
        request = receive_request(topic, "group-lazy", batch_size=1, wait_s=20, invisible_s=600).SerializeToString()
        popped = [-1, 0]
        while popped[-1] > popped[-2]:
            assert len(popped) < _MAX_ROUNDS
            expected = len(calls) + _LARGE_MESSAGES
            for _ in range(_LARGE_MESSAGES):
                lazy.call("ReceiveMessage", request, "lazy")
            await until(lambda expected=expected: len(calls) >= expected)  # type: ignore[misc]
            popped.append(len(pops))
            await asyncio.sleep(0.2)  # the pops of the first rounds may not be answered yet
        # With one message for each call, nothing would be left if all calls waited with theirs.
        found = await other.messages(topic, "group-lazy", 4, batch_size=1, wait_s=20, invisible_s=600)
        assert [message.system_properties.delivery_attempt for message in found] == [1] * 4
        assert not lazy.is_closed
        lazy.close()


def _counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """Return a list that grows with each call of a method."""
    found: list[None] = []
    method = getattr(owner, name)

    def call(*args: Any, **fields: Any) -> Any:
        found.append(None)
        return method(*args, **fields)

    monkeypatch.setattr(owner, name, call)
    return found


async def test_commands_that_are_not_read_end_their_stream_alone(rig: Rig, topic: str) -> None:
    settings = wire.TelemetryCommand(settings=consumer_settings(topic, "group-unread-commands")).SerializeToString()
    lazy = await connect(rig.port, reads=False)
    lazy.call("Telemetry", settings, "lazy-commands", is_open=True)
    other, _ = await rig.client("reads-commands").report(consumer_settings(topic, "group-unread-commands"))
    await until(lambda: getattr(rig.proxy.clients.get("lazy-commands"), "stream", None) is not None)
    found = rig.proxy.clients.get("lazy-commands")
    assert found is not None and found.stream is not None
    command = wire.TelemetryCommand()
    command.verify_message_command.message.body = bytes(100_000)
    stream = found.stream
    kept = 0
    while stream.send(command):
        kept += 1
        assert kept <= MAX_WAITING
    await until(lambda: found.stream is None)
    reader = rig.proxy.clients.get("reads-commands")
    assert reader is not None and reader.stream is not None and reader.stream.send(command)
    assert len((await other.read()).verify_message_command.message.body) == 100_000
    other.cancel()
    lazy.close()
