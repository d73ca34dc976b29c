"""When requests leave: at once from an idle connection, else together at the end of a turn of the loop."""

import asyncio
from typing import Any

import pytest

from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.command import Response
from sprocket.remoting.frames import encode_response
from sprocket.remoting.framing import JSON, FrameDecoder
from sprocket.remoting.pending import ConnectionLost
from sprocket.remoting.routes import RouteTable


class Writes(asyncio.Transport):
    """Transport that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def open_channel() -> tuple[RemotingChannel, Writes]:
    channel, transport = RemotingChannel(RouteTable([]), ChannelCounters()), Writes()
    channel.connection_made(transport)
    return channel, transport


def bodies(write: bytes) -> list[bytes]:
    return [body for _, _, body in FrameDecoder().feed(write)]


async def test_the_first_request_leaves_at_once_and_the_others_together() -> None:
    channel, transport = open_channel()
    first = channel.request(310, {"a": "g"}, b"1", timeout_s=60.0)
    assert [bodies(write) for write in transport.writes] == [[b"1"]]
    others = [channel.request(310, {"a": "g"}, body, timeout_s=60.0) for body in (b"2", b"3", b"4")]
    assert len(transport.writes) == 1
    await asyncio.sleep(0)
    assert [bodies(write) for write in transport.writes] == [[b"1"], [b"2", b"3", b"4"]]
    answers = [b"".join(map(bytes, encode_response(Response(body=b"%d" % n), n, JSON))) for n in (4, 2, 1, 3)]
    channel.data_received(b"".join(answers))
    assert [(await future).body for future in (first, *others)] == [b"1", b"2", b"3", b"4"]
    again = channel.request(310, {"a": "g"}, b"5", timeout_s=60.0)
    assert bodies(transport.writes[-1]) == [b"5"]
    channel.connection_lost(None)
    with pytest.raises(ConnectionLost, match=":0 closed the connection before it answered SEND_MESSAGE_V2"):
        await again
    with pytest.raises(ConnectionLost, match="closed the connection"):
        await channel.request(310, {"a": "g"}, b"6", timeout_s=60.0)


async def test_a_response_after_an_unusual_frame_still_arrives() -> None:
    channel, _ = open_channel()
    future = channel.request(310, {"a": "g"}, b"1", timeout_s=60.0)
    unusual = b'{"code":0,"extFields":{"n":5},"flag":1,"opaque":99}'
    frame = (4 + len(unusual)).to_bytes(4, "big") + len(unusual).to_bytes(4, "big") + unusual
    answer = b"".join(map(bytes, encode_response(Response(body=b"ok"), 1, JSON)))
    channel.data_received(frame + answer)
    assert (await future).body == b"ok"
    channel.connection_lost(None)
