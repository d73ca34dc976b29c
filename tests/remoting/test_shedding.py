"""Requests that have waited for too long: which are answered unserved, and how their waiting is found out."""

import asyncio

from remoting.codes import RequestCode, ResponseCode
from remoting.command import ReceivedResponse, Request, Response
from remoting.frames import encode_request
from remoting.framing import JSON, ROCKETMQ, Frame, FrameDecoder
from remoting.routes import Action, Lane, NoHeader, Resource, Route, RouteTable
from remoting.shedding import shed
from remoting.turn import Turn
from remoting.unread_input import UnreadInput


def serve(_: Request[object]) -> Response:
    return Response()


TABLE = RouteTable(
    [
        Route(RequestCode.SEND_MESSAGE_V2, NoHeader, serve, Resource.NONE, Action.NONE, Lane.SEND),
        Route(RequestCode.HEART_BEAT, NoHeader, serve, Resource.NONE, Action.NONE, Lane.CLIENT),
    ]
)


def frame(
    code: int = RequestCode.SEND_MESSAGE_V2, opaque: int = 7, serialization: int = JSON, oneway: bool = False
) -> Frame:
    fields = {"b": '"opaque":99', "flag": "2"}
    (one,) = FrameDecoder().feed(encode_request(code, opaque, fields, oneway=oneway, serialization=serialization))
    return one


def busy(lane: Lane, waited_s: float, count: int) -> str | None:
    return f"{lane.value} waited {waited_s} of {count}" if lane is Lane.SEND else None


def answers(content: bytes) -> list[ReceivedResponse]:
    decoded = [TABLE.decode(one) for one in FrameDecoder().feed(content)]
    return [one for one in decoded if isinstance(one, ReceivedResponse)]


def test_requests_of_a_lane_that_is_late_are_answered_in_their_serialization_and_order() -> None:
    frames = [frame(opaque=number, serialization=kind) for number in range(4) for kind in (JSON, ROCKETMQ)]
    kept, written = shed(frames, TABLE, busy, 0.5)
    assert kept == []
    got = answers(written)
    assert [one.opaque for one in got] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {(one.code, one.remark) for one in got} == {(ResponseCode.SYSTEM_BUSY, "send waited 0.5 of 8")}


def test_other_lanes_answers_of_the_peer_and_what_is_no_request_are_served() -> None:
    response = (JSON, frame()[1].replace(b'"flag":0', b'"flag":1'), b"")
    rest = [frame(RequestCode.HEART_BEAT), response, (JSON, b'{"code":310,"', b""), (ROCKETMQ, b"\x01\x36", b"")]
    rest.append(frame(4711))
    assert shed(rest, TABLE, busy, 0.5) == (rest, b"")


def test_a_oneway_request_that_is_late_gets_no_answer() -> None:
    assert shed([frame(oneway=True), frame(serialization=ROCKETMQ, oneway=True)], TABLE, busy, 1.0) == ([], b"")


def test_nothing_is_looked_at_while_nothing_is_late() -> None:
    frames = [frame()]
    assert shed(frames, TABLE, lambda *_: None, 1.0) == (frames, b"")


async def test_a_turn_ends_when_all_that_was_ready_is_read() -> None:
    turn = Turn(asyncio.get_running_loop())
    assert [turn.waited_s(now) for now in (5.0, 5.5, 6.0)] == [0.0, 0.5, 1.0]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turn.waited_s(7.0) == 0.0


def test_what_is_read_at_a_pace_has_waited_for_as_long_as_the_rest_will() -> None:
    left = 1000
    input_ = UnreadInput(lambda: left)
    assert input_.waited_s(100, 0.0) == 0.0
    # 100 bytes in a tenth of a second, and 1,100 are there: more than has been seen is not said.
    assert input_.waited_s(100, 0.1) == 0.1
    left = 100
    # 1,000 bytes a second, 200 of them.
    assert round(input_.waited_s(100, 0.2), 3) == 0.2
    left = 0
    assert input_.waited_s(100, 0.3) == 0.0
    left = 1000
    assert input_.waited_s(100, 9.0) == 0.0


def test_a_pace_of_long_ago_is_forgotten() -> None:
    input_ = UnreadInput(lambda: 900)
    input_.waited_s(100, 0.0)
    for step in range(1, 40):
        input_.waited_s(100, step / 2)
    # Ten times as fast: what is there takes a tenth of the time.
    now = 20.0
    for step in range(60):
        waited = input_.waited_s(100, now + step / 20)
    assert 0.4 < waited < 0.6
