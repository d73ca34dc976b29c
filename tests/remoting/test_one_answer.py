"""A request gets one answer at most, whatever its handler does; a oneway request gets none."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sprocket.common.errors import InvariantError, RequestError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.frames import ResponseTemplate, encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder
from sprocket.remoting.routes import Action, BatchHandler, Handler, NoHeader, Resource, Route, RouteTable, open_frame

DONE = ResponseTemplate(ResponseCode.SUCCESS, ())
COUNT = 8
ONEWAY = 3
BOTH = pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])


class Sink(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 4000), "sockname": ("127.0.0.1", 10911)})
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def codes_after(
    serialization: int,
    batch: BatchHandler | None = None,
    handle: Handler | None = None,
    on_bug: Callable[[InvariantError], None] | None = None,
) -> list[tuple[int, int]]:
    """Return (opaque, code) of all answers to one read of `COUNT` requests; number `ONEWAY` is oneway."""
    route = Route(RequestCode.SEND_MESSAGE_V2, NoHeader, handle, Resource.NONE, Action.NONE, batch=batch)
    sink = Sink()
    channel = RemotingChannel(RouteTable([route]), ChannelCounters(), on_bug=on_bug)
    channel.connection_made(sink)
    frames = [
        encode_request(310, number, oneway=number == ONEWAY, serialization=serialization) for number in range(COUNT)
    ]
    channel.data_received(b"".join(frames))
    answers = [open_frame(frame) for frame in FrameDecoder().feed(bytes(sink.written))]
    return sorted((one.opaque, one.code) for one in answers if isinstance(one, ReceivedResponse))


def expected(code_of: Callable[[int], int]) -> list[tuple[int, int]]:
    return [(number, code_of(number)) for number in range(COUNT) if number != ONEWAY]


def encoded(run: list[Request[Any]]) -> bytes:
    return b"".join([DONE.frame(one.serialization, one.opaque, ()) for one in run if one.wants_answer])


@BOTH
@pytest.mark.parametrize("answered", range(COUNT + 1))
@pytest.mark.parametrize("way", ["run", "frame", "reply", "refuse"])
async def test_a_batch_handler_that_raises_after_some_answers(serialization: int, answered: int, way: str) -> None:
    def batch(run: list[Request[Any]]) -> None:
        some = run[:answered]
        if way == "run":
            run[0].channel.answer_run(some, encoded(some))
        for request in some:
            if way == "frame":
                request.channel.answer(request, DONE.frame(request.serialization, request.opaque, ()))
            elif way == "reply":
                request.channel.reply(request, Response())
            elif way == "refuse":
                request.channel.refuse(request, RequestError(ResponseCode.SUCCESS, "none"))
        raise ZeroDivisionError("a bug")

    codes = codes_after(serialization, batch)
    assert codes == expected(lambda n: ResponseCode.SUCCESS if n < answered else ResponseCode.SYSTEM_ERROR)


@BOTH
async def test_what_answers_late_or_twice_is_not_heard(serialization: int, caplog: pytest.LogCaptureFixture) -> None:
    def batch(run: list[Request[Any]]) -> None:
        channel = run[0].channel
        channel.answer_run(run, encoded(run))
        channel.answer_run(run, encoded(run))
        for request in run:
            channel.reply(request, Response(ResponseCode.SYSTEM_BUSY))
            channel.answer(request, DONE.frame(request.serialization, request.opaque, ()))

    assert codes_after(serialization, batch) == expected(lambda _: ResponseCode.SUCCESS)
    assert "event=second_answer_dropped code=310 peer=10.0.0.1:4000" in caplog.text


@BOTH
async def test_a_handler_that_has_replied_and_raises(serialization: int) -> None:
    def handle(request: Request[Any]) -> None:
        request.channel.reply(request, Response(ResponseCode.SYSTEM_BUSY))
        raise ZeroDivisionError("a bug")

    assert codes_after(serialization, handle=handle) == expected(lambda _: ResponseCode.SYSTEM_BUSY)


async def test_a_handler_that_has_replied_and_answers() -> None:
    def handle(request: Request[Any]) -> Response:
        request.channel.reply(request, Response(ResponseCode.SYSTEM_BUSY))
        return Response()

    assert codes_after(JSON, handle=handle) == expected(lambda _: ResponseCode.SYSTEM_BUSY)


async def test_a_bug_of_a_batch_handler_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bugs: list[InvariantError] = []

    def broken(run: list[Request[Any]]) -> None:
        raise InvariantError("does not hold")

    assert codes_after(JSON, broken, on_bug=bugs.append) == expected(lambda _: ResponseCode.SYSTEM_ERROR)
    assert len(bugs) == 1

    def worse(run: list[Request[Any]]) -> None:
        raise MemoryError

    assert codes_after(JSON, worse) == expected(lambda _: ResponseCode.SYSTEM_ERROR)
    assert caplog.text.count("event=handler_failed") == 1


async def test_no_header_says_that_it_has_been_answered() -> None:
    served: list[Request[Any]] = []
    route = Route(RequestCode.HEART_BEAT, NoHeader, lambda request: served.append(request), Resource.NONE, Action.NONE)
    channel = RemotingChannel(RouteTable([route]), ChannelCounters())
    sink = Sink()
    channel.connection_made(sink)
    header = b'{"code":34,"extFields":{},"flag":0,"opaque":5,"#answered":1}'
    channel.data_received((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
    assert [request.is_answered for request in served] == [0]


@BOTH
async def test_what_came_before_garbage_is_answered_behind_a_guard_too(serialization: int) -> None:
    class Closing(Sink):
        """Takes nothing once it is closed, as a transport does."""

        is_closed = False

        def write(self, data: bytes | bytearray | memoryview) -> None:
            if not self.is_closed:
                super().write(data)

        def close(self) -> None:
            self.is_closed = True

    route = Route(RequestCode.SEND_MESSAGE_V2, NoHeader, lambda request: Response(), Resource.NONE, Action.NONE)
    judge = RouteTable([route])
    table = judge.behind(lambda frame, channel: judge.decode(frame))
    sink = Closing()
    channel = RemotingChannel(table, ChannelCounters())
    channel.connection_made(sink)
    frames = [encode_request(310, number, serialization=serialization) for number in range(3)]
    garbage = (8).to_bytes(4, "big") + (serialization << 24 | 4).to_bytes(4, "big") + b"\xff\xff\xff\xff"
    channel.data_received(b"".join([*frames[:2], garbage, frames[2]]))
    answers = [open_frame(frame) for frame in FrameDecoder().feed(bytes(sink.written))]
    assert [one.opaque for one in answers if isinstance(one, ReceivedResponse)] == [0, 1]
    assert sink.is_closed
