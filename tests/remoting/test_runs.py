"""Runs of requests for one batch handler, and the templates that answer them."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codec import codec_binary, codec_json
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Buffer, ReceivedResponse, Request, Response
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.frames import ResponseTemplate, encode_request, encode_response
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, FrameDecoder, frame_prefix
from sprocket.remoting.headers.base import Header, Int
from sprocket.remoting.routes import (
    Action,
    AdmittedFrame,
    BatchHandler,
    CodeFrames,
    Entry,
    NoHeader,
    Resource,
    Route,
    RouteTable,
)
from tests.clock import ManualClock

BOTH = pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])


class Numbered(Header):
    number: Int


def table(batch: BatchHandler = lambda run: None) -> RouteTable:
    return RouteTable(
        [
            Route(code, Numbered, None, Resource.NONE, Action.NONE, batch=batch)
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        ]
    )


def frames_of(*contents: bytes) -> list[Frame]:
    return list(FrameDecoder().feed(b"".join(contents)))


def send(number: int, serialization: int, code: int = 310) -> bytes:
    body = b"body %d" % number
    fields = {"number": str(number), "other": "é"}
    return encode_request(code, number, fields, len(body), serialization=serialization) + body


def run_of(frames: list[Frame]) -> list[Request[Any]]:
    """The run that begins with the first frame, as a channel finds it."""
    routes = table()
    decoded = routes.decode(frames[0])
    assert not isinstance(decoded, ReceivedResponse)
    entry: Entry = decoded[0]
    decoded[1].channel = "a channel"
    run = [decoded[1]]
    routes.decode_run(entry, frames[0], frames[1:], run)
    return run


@BOTH
def test_a_run_holds_what_decoding_one_by_one_gives(serialization: int) -> None:
    frames = frames_of(*(send(number, serialization) for number in range(100)))
    run = run_of(frames)
    assert [(one.opaque, one.header.number, one.body) for one in run] == [(n, n, b"body %d" % n) for n in range(100)]
    assert {one.serialization for one in run} == {serialization}
    assert {one.channel for one in run} == {"a channel"}
    one_by_one = [table().decode(frame) for frame in frames]
    for request, alone in zip(run, one_by_one, strict=True):
        assert not isinstance(alone, ReceivedResponse)
        alone[1].channel = "a channel"
        assert request == alone[1]


def json_frame(header: bytes) -> bytes:
    return frame_prefix(JSON, len(header), 0) + header


@pytest.mark.parametrize(
    "stranger",
    [
        send(9, JSON, code=320),
        send(9, ROCKETMQ),
        json_frame(b'{"code":310,"flag":1,"opaque":3}'),
        json_frame(b'{"code":310,"extFields":{"number":"x"}}'),
        json_frame(b'{"code":310,"extFields":{"number":"1"},"code":320}'),
        json_frame(b'{"code":310,"extFields":{"num'),
        json_frame(b'{"code":310,"extFields":{"number":"1"}}')[:-1] + b"\xff",
        json_frame(b'{"code":310,"extFields":null}'),
        json_frame(b"[]"),
        json_frame(b""),
    ],
)
def test_a_run_ends_before_what_does_not_belong_to_it(stranger: bytes) -> None:
    frames = frames_of(send(1, JSON), send(2, JSON), stranger, send(3, JSON))
    assert [request.opaque for request in run_of(frames)] == [1, 2]


def test_a_run_takes_headers_in_another_order_than_the_usual() -> None:
    odd = json_frame(b'{"opaque":7,"extFields":{"number":"1"},"code":310}')
    frames = frames_of(send(1, JSON), odd)
    assert [request.opaque for request in run_of(frames)] == [1, 7]
    assert [request.opaque for request in run_of(frames[1:])] == [7]


@BOTH
def test_a_template_says_what_the_general_way_says(serialization: int) -> None:
    template = ResponseTemplate(
        ResponseCode.PULL_NOT_FOUND, {"id": "7F%08X", "offset": "%d", "key": "%b"}, {"region": '50%s "x"'}, "100%d"
    )
    fast = template.frame(serialization, 2**31 - 1, (255, -1, b"abc"), 4) + b"body"
    fields = {"id": "7F000000FF", "offset": "-1", "key": "abc", "region": '50%s "x"'}
    general = b"".join(
        encode_response(Response(ResponseCode.PULL_NOT_FOUND, "100%d", fields, b"body"), 2**31 - 1, serialization)
    )
    empty = RouteTable([])
    assert empty.decode(frames_of(fast)[0]) == empty.decode(frames_of(general)[0])


def test_what_alternates_is_grouped_by_handler_and_passes_nothing_else() -> None:
    seen: list[tuple[str, list[int]]] = []

    def noting(name: str) -> BatchHandler:
        return lambda run: seen.append((name, [request.opaque for request in run]))

    sends, acks = noting("sends"), noting("acks")
    routes = RouteTable(
        [
            Route(RequestCode.SEND_MESSAGE_V2, NoHeader, None, Resource.NONE, Action.NONE, batch=sends),
            Route(RequestCode.SEND_BATCH_MESSAGE, NoHeader, None, Resource.NONE, Action.NONE, batch=sends),
            Route(RequestCode.ACK_MESSAGE, NoHeader, None, Resource.NONE, Action.NONE, batch=acks),
            Route(RequestCode.HEART_BEAT, NoHeader, lambda _: None, Resource.NONE, Action.NONE),
        ]
    )
    codes = [310, 200051, 320, 310, 200051, 34, 200051, 310]
    frames = frames_of(*(encode_request(code, opaque) for opaque, code in enumerate(codes)))
    grouped = routes.grouped(frames, 0)
    decoded = [routes.decode(frame) for frame in grouped]
    assert [one[1].opaque for one in decoded if not isinstance(one, ReceivedResponse)] == [0, 2, 3, 1, 4, 5, 6, 7]
    assert routes.grouped(frames, 6) == frames
    assert len(routes.grouped(frames, 2)) == len(frames)


@BOTH
@pytest.mark.parametrize("code", [10, 37, 310, 200050, 200051])
def test_the_first_bytes_tell_where_a_request_goes(code: int, serialization: int) -> None:
    codes = [RequestCode(one) for one in (10, 37, 310, 1007, 200050, 200051, 200054)]
    routes = RouteTable([Route(one, NoHeader, lambda _: None, Resource.NONE, Action.NONE) for one in codes])
    frame = frames_of(encode_request(code, 1, serialization=serialization))[0]
    entry = routes.entry_of(frame)
    assert entry is not None
    assert entry.code == code


# What may be decoded


def guarded(batch: BatchHandler = lambda run: None) -> tuple[RouteTable, list[Frame]]:
    """Return a table with a guard, and four frames; the guard admitted those with an even number."""
    routes = table(batch)
    frames: list[Frame] = []
    for number, frame in enumerate(frames_of(*(send(number, JSON) for number in range(4)))):
        if number % 2 == 0:
            admitted = AdmittedFrame(frame)
            admitted.decoded = routes.decode(frame)
            frames.append(admitted)
        else:
            frames.append(frame)
    return routes.behind(lambda frame, channel: None), frames


def test_a_frame_that_did_not_pass_the_guard_is_not_decoded() -> None:
    routes, frames = guarded()
    assert not isinstance(routes.decode(frames[0]), ReceivedResponse)
    with pytest.raises(ProtocolError, match="without passing access control"):
        routes.decode(frames[1])
    # A response has to pass it as well.
    response = b"".join(map(bytes, encode_response(Response(), 1, JSON)))
    with pytest.raises(ProtocolError, match="without passing access control"):
        routes.decode(frames_of(response)[0])


def test_a_run_behind_a_guard_ends_before_a_frame_that_did_not_pass_it() -> None:
    routes, frames = guarded()
    decoded = routes.decode(frames[0])
    assert not isinstance(decoded, ReceivedResponse)
    for following in ([frames[1], frames[2]], [frames[2], frames[1]]):
        run = [decoded[1]]
        routes.decode_run(decoded[0], frames[0], following, run)
        assert [request.opaque for request in run] == [0, 2][: 1 + (following[0] is frames[2])]


async def test_frames_of_which_one_did_not_pass_the_guard_are_not_served_as_a_whole() -> None:
    _, frames = guarded()
    usual = CodeFrames(310, lambda code, frames, index, channel: len(frames) - index)
    route = Route(RequestCode.SEND_MESSAGE_V2, NoHeader, lambda request: None, Resource.TOPIC, Action.PUB, frames=usual)
    routes = RouteTable([route]).behind(lambda frame, channel: None)
    channel = RemotingChannel(routes, ChannelCounters())
    assert routes.serve_frames([frames[0], frames[2]], 0, channel) == 2
    for unchecked in ([frames[0], frames[1]], [frames[1], frames[0]], [frames[0], frames[2], frames[3]]):
        assert routes.serve_frames(unchecked, 0, channel) == 0


async def test_a_connection_with_a_frame_that_did_not_pass_the_guard_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sprocket.remoting.channel.admitted", lambda guard, decoder, frames, channel: frames)
    served: list[int] = []
    routes, frames = guarded(lambda run: served.extend(request.opaque for request in run))
    counters = ChannelCounters()
    channel = RemotingChannel(routes, counters)
    channel.connection_made(Closing())
    channel._handle(frames)
    assert served == [0]
    assert counters.protocol_errors["unguarded"] == 1
    assert channel._failed


class Closing(asyncio.Transport):
    """Sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Buffer) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.written += map(bytes, list_of_data)

    def close(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def many_fields(count: int, serialization: int, name: str = "f%d", value: str = "") -> bytes:
    fields = {"number": "1"} | {name % number: value or str(number) for number in range(count - 1)}
    codec = codec_binary if serialization == ROCKETMQ else codec_json
    header = codec.encode_header(310, 7, 0, None, fields)
    return frame_prefix(serialization, len(header), 0) + header


def served_of(*contents: bytes) -> tuple[list[int], dict[str, int]]:
    """What a channel serves of one read, and the errors that it counts."""
    served: list[int] = []
    routes = table()
    for entry in routes.entries.values():
        entry.batch = lambda run: served.extend(request.opaque for request in run)
    counters = ChannelCounters()
    channel = RemotingChannel(routes, counters)
    channel.connection_made(Closing())
    channel.data_received(b"".join(contents))
    return served, dict(counters.protocol_errors)


@BOTH
@pytest.mark.parametrize(("name", "value"), [("f%d", ""), ("%d", "0"), ("%d", "a,b"), ("%d,", "x" * 50)])
async def test_more_fields_than_are_permitted_are_refused(serialization: int, name: str, value: str) -> None:
    few, many = (many_fields(limits.MAX_EXT_FIELDS + more, serialization, name, value) for more in (0, 1))
    assert served_of(few, few) == ([7, 7], {})
    assert served_of(few, many, few) == ([7, 7], {})


async def test_the_shortest_fields_are_counted_too() -> None:
    names = [*("abcdefghij"), *(f"{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz" for b in "abcdefghijklmnopqrstuvwxyz")]
    fields = ",".join(['"number":1', '"":0', *(f'"{name}":0' for name in names[: limits.MAX_EXT_FIELDS - 1])])
    frame = json_frame(b'{"code":310,"extFields":{%b}}' % fields.encode())
    # It does not say which request it is, so it cannot be refused alone.
    assert served_of(frame) == ([], {"ext_fields": 1})


async def test_a_large_header_with_many_commas_in_a_value_is_served() -> None:
    fields = {"number": "1", "names": "," * 20_000}
    assert served_of(encode_request(310, 7, fields), encode_request(310, 8, fields)) == ([7, 8], {})


async def test_requests_that_a_failed_handler_has_put_off_wait() -> None:
    runs: list[list[int]] = []

    def serve(run: list[Request[Any]]) -> None:
        del run[2:]
        runs.append([request.opaque for request in run])
        if len(runs) == 1:
            raise ValueError("a bug")
        for request in run:
            request.channel.reply(request, Response())

    channel = RemotingChannel(table(serve), ChannelCounters())
    transport = Closing()
    channel.connection_made(transport)
    channel.data_received(b"".join(send(number, JSON) for number in range(5)))
    async with asyncio.timeout(60):
        while len(answers := frames_of(*transport.written)) < 5:
            await asyncio.sleep(0)
    assert runs == [[0, 1], [2, 3], [4]]
    decoded = [RouteTable([]).decode(answer) for answer in answers]
    assert [one.code for one in decoded if isinstance(one, ReceivedResponse)] == [1, 1, 0, 0, 0]


async def test_what_a_handler_leaves_is_not_decoded_in_large_runs_again() -> None:
    sizes: list[int] = []
    served: list[int] = []

    def batch(run: list[Request[Any]]) -> None:
        sizes.append(len(run))
        if len(served) < 400:
            del run[8:]
        served.extend(request.opaque for request in run)

    # Time stands still, so the slice of the turn does not end.
    turn = Turn(asyncio.get_running_loop(), ManualClock())
    channel = RemotingChannel(table(batch), ChannelCounters(), turn=turn)
    channel.connection_made(Closing())
    channel.data_received(b"".join(send(number, JSON) for number in range(1000)))
    assert served == list(range(1000))
    assert sum(sizes) <= 1000 + 400 * 2 + 600, "each frame is decoded about twice, not fifty times"
    assert sizes[-1] > 16 or sizes[-2] > 16, "runs grow again"


def test_a_refused_request_between_others_ends_a_run() -> None:
    """So a handler that leaves the rest for another turn is not asked for the rest in this one."""
    served: list[list[int]] = []
    refused: list[int] = []

    def batch(run: list[Request[Any]]) -> None:
        del run[2:]
        served.append([request.opaque for request in run])

    def check(request: Request[Any]) -> Response | None:
        return Response(code=ResponseCode.NO_PERMISSION) if request.opaque in (0, 1, 5) else None

    class Peer:
        def reply(self, request: Request[Any], response: Response) -> None:
            refused.append(request.opaque)

    route = Route(RequestCode.SEND_MESSAGE_V2, Numbered, None, Resource.NONE, Action.NONE, batch=batch, checks=(check,))
    entry, run = Entry(route), run_of(frames_of(*(send(number, JSON) for number in range(8))))
    assert entry.batch is not None
    steps = []
    for request in run:
        request.channel = Peer()
    while run:
        entry.batch(taken := run.copy())
        steps.append(len(taken))
        run = run[steps[-1] :]
    assert steps == [4, 1, 3] and served == [[2, 3], [4], [6, 7]] and refused == [0, 1, 5]
