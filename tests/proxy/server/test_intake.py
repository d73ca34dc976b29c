"""What is read and what is served at a time, of each connection and of all; and what is refused unread."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from proxy.config import ProxyConfig
from proxy.server import intake as intake_module
from proxy.server.dispatcher import SERVICE
from proxy.server.intake import Intake
from proxy.status import Refusal
from sprocket.common import limits
from sprocket.grpc_wire import messaging_pb2 as wire
from tests.proxy.rig import GrpcClient, Rig
from tests.proxy.test_access import folder as folder
from tests.proxy.test_access import guarded as guarded

_ONE, _TWO = ("10.0.0.1", 1), ("10.0.0.2", 2)
_LARGEST = limits.MAX_PARTIAL_BYTES // 8  # eight are read at a time, two of each connection


def _of(content: object) -> Callable[[], Awaitable[Any]]:
    async def read() -> object:
        return content

    return read


class _Slow:
    """A request that arrives when the test says so."""

    def __init__(self, intake: Intake, peer: tuple[str, int]) -> None:
        self.arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.began = False
        self.task = asyncio.ensure_future(intake.read(peer, self._read))

    async def _read(self) -> bytes:
        self.began = True
        return await self.arrived


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("peer", "size", "is_served"), [(_ONE, 11, False), (_TWO, 185, True), (_TWO, 186, False)])
async def test_bytes_of_a_connection_and_of_all_are_bounded(peer: Any, size: int, is_served: bool) -> None:
    intake = Intake(100, 100)
    assert await intake.read(_ONE, _of(b"x" * 15)) == b"x" * 15
    if is_served:
        await intake.read(peer, _of(b"x" * size))
        assert intake.in_flight_bytes == 15 + size
        intake.done(peer, size)
    else:
        with pytest.raises(Refusal) as refused:
            await intake.read(peer, _of(b"x" * size))
        assert refused.value.code == wire.TOO_MANY_REQUESTS
    intake.done(_ONE, 15)
    assert not intake.in_flight_bytes and not len(intake)
    # One that is larger than all together is served alone.
    await intake.read(_ONE, _of(b"x" * 101))


async def test_call_that_ends_without_a_request_is_refused() -> None:
    intake = Intake(100, 100)
    with pytest.raises(Refusal, match="without a request"):
        await intake.read(_ONE, _of(grpc.aio.EOF))
    assert not len(intake)


async def test_requests_of_one_connection_wait_for_each_other() -> None:
    intake = Intake(100, _LARGEST)
    slow = [_Slow(intake, _ONE) for _ in range(3)]
    await _turns()
    assert [one.began for one in slow] == [True, True, False]
    assert await intake.read(_TWO, _of(b"other")) == b"other"
    slow[0].arrived.set_result(b"x")
    await _turns()
    assert slow[2].began
    for one in slow[1:]:
        one.arrived.set_result(b"x")
    assert await asyncio.gather(*(one.task for one in slow)) == [b"x"] * 3


async def test_request_that_does_not_arrive_gives_way_to_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "_HURRIED_S", 0.01)
    intake = Intake(100, _LARGEST)
    silent = [_Slow(intake, _ONE) for _ in range(2)]
    await _turns()
    assert await asyncio.wait_for(intake.read(_ONE, _of(b"x")), 10) == b"x"
    for one in silent:
        with pytest.raises(Refusal, match="did not arrive"):
            await one.task


async def test_requests_that_do_not_arrive_end_each_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRAME_DEADLINE_S", 0.05)
    intake = Intake(100, _LARGEST)
    for _ in range(2):  # the second time the clock of the first has run down
        first = _Slow(intake, _ONE)
        await asyncio.sleep(0.03)
        second, cancelled = _Slow(intake, _ONE), _Slow(intake, _TWO)
        await _turns()
        cancelled.task.cancel()
        assert await intake.read(_TWO, _of(b"x")) == b"x"
        intake.done(_TWO, 1)
        for one in (first, second):
            with pytest.raises(Refusal, match="did not arrive"):
                await one.task
        assert cancelled.task.cancelled() and not len(intake)


async def test_place_of_a_call_that_ends_while_it_waits_is_not_lost() -> None:
    intake = Intake(100, _LARGEST)
    slow = [_Slow(intake, _ONE) for _ in range(4)]
    await _turns()
    slow[2].task.cancel()
    slow[0].task.cancel()  # its place is for the last, which ends in the same turn
    await asyncio.sleep(0)
    slow[3].task.cancel()
    slow[1].arrived.set_result(b"")
    await asyncio.gather(*(one.task for one in slow), return_exceptions=True)
    assert [one.task.cancelled() for one in slow] == [True, False, True, True]
    both = [_Slow(intake, _ONE) for _ in range(2)]
    await _turns()
    assert all(one.began for one in both)
    for one in both:
        one.arrived.set_result(b"")
        await one.task


async def test_oldest_request_of_the_busiest_connection_ends_when_too_many_are_read() -> None:
    intake = Intake(100, _LARGEST)
    busy = [_Slow(intake, _ONE) for _ in range(2)]
    await _turns()
    others = [_Slow(intake, ("10.0.0.9", number)) for number in range(6)]
    await _turns()
    last = _Slow(intake, _TWO)
    with pytest.raises(Refusal, match="did not arrive"):
        await busy[0].task
    assert last.began and not any(one.task.done() for one in [busy[1], *others, last])
    for one in [busy[1], *others, last]:
        one.arrived.set_result(b"")
        await one.task


@pytest.mark.parametrize(
    ("body", "inbound", "expected"),
    [
        (4 << 20, 130 << 20, 5 << 20), (4 << 20, 2 << 20, 2 << 20),
        (0, 130 << 20, limits.MAX_FRAME_BYTES), (64 << 20, 130 << 20, limits.MAX_FRAME_BYTES),
    ],
)  # fmt: skip
def test_limit_of_a_request_is_what_brokers_take(body: int, inbound: int, expected: int) -> None:
    config = ProxyConfig(max_message_size=body, grpc_max_inbound_message_size=inbound)
    assert config.max_request_bytes == expected


def _raw(client: GrpcClient, name: str, kind: str = "stream_unary") -> Any:
    answer = getattr(wire, SERVICE.methods_by_name[name].output_type.name)
    make = getattr(client.channel, kind)(f"/{SERVICE.full_name}/{name}", None, answer.FromString)
    return make(metadata=client.metadata, timeout=30)


async def test_unsigned_calls_are_refused_before_their_request_is_there(guarded: Rig) -> None:
    client = guarded.client()
    # Nothing but metadata is sent.
    assert (await _raw(client, "SendMessage")).status.code == wire.UNAUTHORIZED
    for name in ("ReceiveMessage", "Telemetry"):
        call = _raw(client, name, "stream_stream")
        assert (await call.read()).status.code == wire.UNAUTHORIZED
        assert await call.read() is grpc.aio.EOF


async def test_request_that_no_broker_takes_is_refused(rig: Rig, topic: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await rig.client().send(topic, "x" * (5 << 20))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_bytes_that_are_no_request_are_refused(rig: Rig) -> None:
    call = _raw(rig.client(), "SendMessage")
    await call.write(b"\xff\xff")
    assert (await call).status.code == wire.BAD_REQUEST
    call = _raw(rig.client(), "SendMessage")
    await call.done_writing()
    assert (await call).status.code == wire.BAD_REQUEST


async def test_calls_without_a_request_do_not_stop_others_of_their_connection(rig: Rig, topic: str) -> None:
    client = rig.client()
    silent = [_raw(client, "SendMessage") for _ in range(60)]
    for _ in range(3):
        assert (await client.send(topic, "x")).status.code == wire.OK
    for call in silent:
        call.cancel()
