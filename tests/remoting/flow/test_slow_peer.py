"""A peer that sends more than it may is served after all others, a little in each turn of the loop."""

import asyncio
from typing import Any

import pytest

from sprocket.common.errors import ProtocolError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import Frame
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable
from tests.clock import ManualClock


class Quiet(asyncio.Transport):
    """A transport that is read or not, as it is told, and takes nothing."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Rig:
    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        route = Route(RequestCode.SEND_MESSAGE_V2, NoHeader, None, Resource.NONE, Action.NONE, batch=self._serve)
        self.table = RouteTable([route])
        self.turn = Turn(asyncio.get_running_loop(), ManualClock())

    def _serve(self, run: list[Request[Any]]) -> None:
        self.runs.append([request.opaque for request in run])

    def connect(self) -> RemotingChannel:
        channel = RemotingChannel(self.table, ChannelCounters(), turn=self.turn)
        channel.connection_made(Quiet())
        return channel


def sends(first: int, count: int) -> bytes:
    return b"".join(encode_request(310, number, {}, 0) for number in range(first, first + count))


@pytest.mark.parametrize("count", [1, 40])
async def test_a_slow_peer_is_served_after_the_reads_of_a_turn_and_in_order(count: int) -> None:
    rig = Rig()
    slow, other = rig.connect(), rig.connect()
    slow.read_after(0.001)
    await asyncio.sleep(0.01)
    slow.data_received(sends(100, count))
    slow.data_received(sends(100 + count, 1))
    assert rig.runs == []
    other.data_received(sends(0, 1))
    assert rig.runs == [[0]]
    for _ in range(10):
        await asyncio.sleep(0)
    assert [number for run in rig.runs[1:] for number in run] == list(range(100, 100 + count + 1))
    assert max(map(len, rig.runs)) <= 16


async def test_a_peer_that_was_slow_is_served_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sprocket.remoting.flow.slow_reads._AFTER_S", 0.0)
    rig = Rig()
    peer = rig.connect()
    peer.read_after(0.001)
    await asyncio.sleep(0.01)
    peer.data_received(sends(0, 20))
    assert rig.runs == [list(range(20))]


async def test_of_a_slow_peer_nothing_is_served_after_a_frame_that_is_none() -> None:
    rig = Rig()
    table = rig.table

    def guard(frame: Frame, channel: Any) -> Any:
        found = table.decode(frame)
        if isinstance(found, tuple) and found[1].opaque == 102:
            raise ProtocolError("test", "no request")
        return found

    rig.table = table.behind(guard)
    slow = rig.connect()
    slow.read_after(0.001)
    await asyncio.sleep(0.01)
    slow.data_received(sends(100, 40))
    for _ in range(10):
        await asyncio.sleep(0)
    assert rig.runs == [[100, 101]]
