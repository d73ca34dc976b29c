"""Requests that have waited for too long: which are answered unserved, and how their waiting is found out."""

import asyncio

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.flow.shedding import shed
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.flow.unread_input import UnreadInput
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, FrameDecoder
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable, Traffic
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings


def serve(_: Request[object]) -> Response:
    return Response()


TABLE = RouteTable(
    [
        Route(RequestCode.SEND_MESSAGE_V2, NoHeader, serve, Resource.NONE, Action.NONE, Traffic.SEND),
        Route(RequestCode.HEART_BEAT, NoHeader, serve, Resource.NONE, Action.NONE, Traffic.CLIENT),
    ]
)


def frame(
    code: int = RequestCode.SEND_MESSAGE_V2, opaque: int = 7, serialization: int = JSON, oneway: bool = False
) -> Frame:
    fields = {"b": '"opaque":99', "flag": "2"}
    (one,) = FrameDecoder().feed(encode_request(code, opaque, fields, oneway=oneway, serialization=serialization))
    return one


def busy(traffic: Traffic, waited_s: float, count: int) -> tuple[float, str]:
    return (0.0, f"{traffic.value} waited {waited_s} of {count}") if traffic is Traffic.SEND else (1.0, "")


def answers(content: bytes) -> list[ReceivedResponse]:
    decoded = [TABLE.decode(one) for one in FrameDecoder().feed(content)]
    return [one for one in decoded if isinstance(one, ReceivedResponse)]


def test_requests_of_a_lane_that_is_late_are_answered_in_their_serialization() -> None:
    # Opaques of one length, of several, and below 0.
    numbers = [7, 8, 9, 10, 2**31 - 1, -(2**31), -5]
    frames = [frame(opaque=number, serialization=kind) for number in numbers for kind in (JSON, ROCKETMQ)]
    for some in (frames, frames[:6:2], frames[1:6:2]):
        kept, written = shed(some, TABLE, busy, 0.5)
        assert kept == []
        got = answers(written)
        expected = [one.opaque for one in map(TABLE.decode, some) if isinstance(one, tuple) for one in one[1:]]
        assert sorted(one.opaque for one in got) == sorted(expected)
        remark = f"send waited 0.5 of {len(some)}"
        assert {(one.code, one.remark) for one in got} == {(ResponseCode.SYSTEM_BUSY, remark)}


def test_of_each_read_the_share_is_served_that_can_be_and_one_at_least() -> None:
    beats = [frame(RequestCode.HEART_BEAT, number) for number in range(3)]
    frames = [frame(opaque=number) for number in range(40)]
    mixed = [*frames[:20], *beats, *frames[20:]]
    kept, written = shed(
        mixed, TABLE, lambda traffic, *_: (0.25, "busy") if traffic is Traffic.SEND else (1.0, ""), 0.1
    )
    assert kept == [*frames[:10], *beats]
    assert [one.opaque for one in answers(written)] == list(range(10, 40))
    kept, written = shed(frames[:3], TABLE, lambda *_: (0.01, "busy"), 0.1)
    assert kept == frames[:1]
    assert [one.opaque for one in answers(written)] == [1, 2]


def test_headers_that_are_wrong_together_are_told_apart() -> None:
    # Each is no JSON, or a text of more than one; what is right between them is answered.
    wrong = [(JSON, text, b"") for text in (b'{"code":310,"a":[{}', b"{}]}", b'{"code":310,"e":1},{"opaque":3}')]
    kept, written = shed([*wrong[:1], frame(opaque=11), *wrong[1:]], TABLE, busy, 0.5)
    assert 11 in [one.opaque for one in answers(written)]
    assert wrong[0] in kept


def test_other_lanes_answers_of_the_peer_and_what_is_no_request_are_served() -> None:
    response = (JSON, frame()[1].replace(b'"flag":0', b'"flag":1'), b"")
    rest = [frame(RequestCode.HEART_BEAT), response, (JSON, b'{"code":310,"', b""), (ROCKETMQ, b"\x01\x36", b"")]
    rest.append(frame(4711))
    assert shed(rest, TABLE, busy, 0.5) == (rest, b"")


def test_a_oneway_request_that_is_late_gets_no_answer() -> None:
    assert shed([frame(oneway=True), frame(serialization=ROCKETMQ, oneway=True)], TABLE, busy, 1.0) == ([], b"")


def test_nothing_is_looked_at_while_nothing_is_late() -> None:
    frames = [frame()]
    assert shed(frames, TABLE, lambda *_: (1.0, ""), 1.0) == (frames, b"")


async def test_a_refused_connection_is_still_read_and_answered_in_full() -> None:
    table = RouteTable(TABLE.routes)
    looks = 0

    def overload(traffic: Traffic, waited_s: float, count: int) -> tuple[float, str]:
        nonlocal looks
        looks += traffic is Traffic.SEND
        return (0.0, "busy") if traffic is Traffic.SEND and looks < 20 else (1.0, "")

    table.overload = overload
    server = RemotingServer(table, ConnectionSettings("127.0.0.1"))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    # Reads of less are always served.
    body = bytes(100_000)
    head = FrameDecoder()
    got: list[ReceivedResponse] = []
    for opaque in range(200):
        writer.write(encode_request(RequestCode.SEND_MESSAGE_V2, opaque, {}, len(body)) + body)
        await writer.drain()
    while len(got) < 200:
        content = await asyncio.wait_for(reader.read(1 << 16), 60)
        assert content, "closed"
        got += [one for one in map(table.decode, head.feed(content)) if isinstance(one, ReceivedResponse)]
    assert sorted(one.opaque for one in got) == list(range(200))
    assert {one.code for one in got} <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
    writer.close()
    await server.stop()


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


def test_the_kernel_is_asked_at_times_while_nothing_is_left() -> None:
    asked, left = 0, 0

    def unread() -> int:
        nonlocal asked
        asked += 1
        return left

    input_ = UnreadInput(unread)
    assert [input_.waited_s(100, step / 1000) for step in range(10)] == [0.0] * 10
    assert asked == 2
    left = 1000
    # From the first one that finds something on, every read asks.
    assert [input_.waited_s(100, step / 1000) > 0 for step in range(10, 13)] == [False, True, True]
    assert asked == 5


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
