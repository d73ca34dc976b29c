"""A connection with more requests than a turn can serve: others are served in between, and nothing else changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sprocket.common.next_turn import SLICE_S
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.flow.long_answers import MAX_LONG_ANSWERS
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import Frame, FrameDecoder
from sprocket.remoting.routes import Action, Handler, NoHeader, Resource, Route, RouteTable, Steps, open_frame
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from tests.clock import ManualClock

SLOW, QUICK, LONG, RUN, BIG = (
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.HEART_BEAT,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.SEND_MESSAGE,
    RequestCode.GET_ALL_TOPIC_CONFIG,
)
COUNT = 400
STEPS = 7


class Work:
    """Handlers that take time of a clock of their own.  `served` has the code and opaque of each request, in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.served: list[tuple[int, int]] = []
        self.steps = 0
        self.begun = 0  # long answers
        self.runs: list[int] = []

    def table(self) -> RouteTable:
        def route(code: RequestCode, handle: Handler | None, batch: Any = None) -> Route:
            return Route(code, NoHeader, handle, Resource.NONE, Action.NONE, batch=batch)

        return RouteTable(
            [route(SLOW, self.slow), route(QUICK, self.quick), route(LONG, self.long), route(BIG, self.big),
             route(RUN, None, self.run)]
        )  # fmt: skip

    def quick(self, request: Request[Any]) -> Response:
        self.served.append((request.code, request.opaque))
        return Response()

    def slow(self, request: Request[Any]) -> Response:
        self.clock.advance(SLICE_S / 2)
        return self.quick(request)

    def big(self, request: Request[Any]) -> Response:
        self.slow(request)
        return Response(body=bytes(1 << 20))

    def run(self, run: list[Request[Any]]) -> None:
        self.clock.advance(len(run) * SLICE_S / 50)
        self.runs.append(len(run))
        for request in run:
            request.channel.reply(request, self.quick(request))

    def long(self, request: Request[Any]) -> Steps:
        self.begun += 1
        for _ in range(STEPS):
            self.clock.advance(SLICE_S / 2)
            self.steps += 1
            yield
        return self.quick(request)


@asynccontextmanager
async def serving(work: Work, *, is_guarded: bool = False) -> AsyncIterator[RemotingServer]:
    table = work.table()

    def guard(frame: Frame, channel: Any) -> Any:
        work.clock.advance(SLICE_S / 100)
        decoded = work.table().decode(frame)
        if isinstance(decoded, tuple):
            decoded[1].channel = channel
        return decoded

    server = RemotingServer(
        table.behind(guard) if is_guarded else table, ConnectionSettings("127.0.0.1"), clock=work.clock
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Peer:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    def ask(self, code: RequestCode, count: int = 1, *, first: int = 1) -> None:
        self.writer.write(b"".join(encode_request(code, opaque) for opaque in range(first, first + count)))

    async def response(self) -> ReceivedResponse:
        while not self._frames:
            data = await self.reader.read(1 << 16)
            assert data, "the server closed the connection"
            self._frames += self._decoder.feed(data)
        found = open_frame(self._frames.pop(0))
        assert isinstance(found, ReceivedResponse)
        return found

    async def opaques(self, count: int) -> list[int]:
        return [(await self.response()).opaque for _ in range(count)]


async def peer_of(server: RemotingServer, limit: int = 1 << 16) -> Peer:
    return Peer(*await asyncio.open_connection("127.0.0.1", server.port, limit=limit))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("code", [SLOW, LONG])
@pytest.mark.parametrize("is_guarded", [False, True])
async def test_others_are_served_between_the_requests_of_one_read(code: RequestCode, is_guarded: bool) -> None:
    work = Work()
    async with serving(work, is_guarded=is_guarded) as server:
        busy, other = await peer_of(server), await peer_of(server)
        busy.ask(code, COUNT)
        await until(lambda: bool(work.served or work.steps))
        answered = 0
        while len(work.served) - answered < COUNT:
            before = work.clock.monotonic()
            other.ask(QUICK, first=answered)
            assert await other.opaques(1) == [answered]
            answered += 1
            # Both directions of the exchange, and what was under way: a few turns of at most two slices each.
            assert work.clock.monotonic() - before <= 12 * SLICE_S
        assert answered > 2
        assert await busy.opaques(COUNT) == list(range(1, COUNT + 1))


async def test_a_batch_handler_that_is_slow_gets_fewer_requests_at_once() -> None:
    work = Work()
    async with serving(work) as server:
        peer = await peer_of(server)
        for first in range(0, 8 * COUNT, COUNT):
            peer.ask(RUN, COUNT, first=first)
            await peer.opaques(COUNT)
        assert max(work.runs[-20:]) <= 100  # two slices


async def test_requests_of_one_connection_keep_their_order() -> None:
    work = Work()
    async with serving(work) as server:
        peer, asked = await peer_of(server), []
        for number in range(0, COUNT, 4):
            for at, code in enumerate((SLOW, QUICK, RUN, QUICK)):
                peer.ask(code, first=number + at)
                asked.append((int(code), number + at))
        assert await peer.opaques(COUNT) == list(range(COUNT))
        assert work.served == asked


@pytest.mark.parametrize("code", [SLOW, LONG])
async def test_requests_before_the_end_of_the_stream_are_answered(code: RequestCode) -> None:
    work = Work()
    async with serving(work) as server:
        peer = await peer_of(server)
        peer.ask(code, COUNT)
        peer.writer.write_eof()
        assert await peer.opaques(COUNT) == list(range(1, COUNT + 1))
        assert await peer.reader.read() == b""


async def test_requests_before_garbage_are_answered() -> None:
    work = Work()
    async with serving(work) as server:
        peer = await peer_of(server)
        peer.ask(SLOW, COUNT)
        peer.writer.write(b"\xff" * 64)
        assert await peer.opaques(COUNT) == list(range(1, COUNT + 1))
        assert await peer.reader.read() == b""
        assert server.counters.protocol_errors == {"frame_length": 1}


@pytest.mark.parametrize("code", [SLOW, LONG])
async def test_a_connection_whose_requests_wait_is_not_read(code: RequestCode) -> None:
    work = Work()
    async with serving(work) as server:
        peer = await peer_of(server)
        size = len(encode_request(code, 1))
        count = 64 * (1 << 20) // size // 8
        peer.writer.write(encode_request(code, 1) * count)
        await until(lambda: len(work.served) >= 50)
        # What was read once holds the frames that wait; 256 KiB are a read of the event loop.
        assert server.counters.received_bytes <= len(work.served) * size + 2 * (256 << 10)
        peer.writer.transport.abort()
        await until(lambda: not server.channels)
        served = len(work.served)
        await asyncio.sleep(0.01)
        assert len(work.served) == served


async def test_long_answers_of_one_connection_are_few_at_a_time() -> None:
    work = Work()
    async with serving(work) as server:
        peer = await peer_of(server)
        for opaque in range(1, 4 * MAX_LONG_ANSWERS + 1):  # each in a read of its own
            peer.ask(LONG, first=opaque)
            await peer.writer.drain()
            await asyncio.sleep(0)
        unfinished = 0

        def is_done() -> bool:
            nonlocal unfinished
            unfinished = max(unfinished, work.begun - len(work.served))
            return len(work.served) == 4 * MAX_LONG_ANSWERS

        await until(is_done)
        assert unfinished == MAX_LONG_ANSWERS
        assert await peer.opaques(4 * MAX_LONG_ANSWERS) == list(range(1, 4 * MAX_LONG_ANSWERS + 1))


async def test_a_quick_request_does_not_wait_for_the_long_answers_of_its_connection() -> None:
    work = Work()
    async with serving(work) as server:
        peer = await peer_of(server)
        peer.ask(LONG, MAX_LONG_ANSWERS - 1)
        peer.ask(QUICK, first=100)
        assert (await peer.opaques(MAX_LONG_ANSWERS)).index(100) < MAX_LONG_ANSWERS - 1


async def test_another_table_serves_what_waits_and_refuses_unfinished_answers() -> None:
    work, later = Work(), Work()
    async with serving(work) as server:
        peer = await peer_of(server)
        peer.ask(LONG, 2)
        peer.ask(SLOW, COUNT, first=3)
        await until(lambda: len(work.served) > 3)
        server.hold()
        served = [opaque for code, opaque in work.served if code == SLOW]
        peer.ask(QUICK, 5, first=COUNT + 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert [opaque for code, opaque in work.served if code == SLOW] == served
        server.serve(later.table())
        found = {one.opaque: one.code for one in [await peer.response() for _ in range(COUNT + 7)]}
        refused = {opaque for opaque, code in found.items() if code == ResponseCode.SERVICE_NOT_AVAILABLE}
        assert refused | {opaque for code, opaque in work.served if code == LONG} == {1, 2}
        assert [*served, *(opaque for _, opaque in later.served)] == list(range(3, COUNT + 8))


async def test_a_peer_that_does_not_read_holds_up_nobody() -> None:
    work = Work()
    async with serving(work) as server:
        deaf, other = await peer_of(server, limit=1024), await peer_of(server)
        deaf.ask(BIG, 64)
        deaf.ask(LONG, MAX_LONG_ANSWERS, first=65)
        await until(lambda: any(channel.stalled_at is not None for channel in server.channels.values()))
        other.ask(LONG, 20)
        other.ask(SLOW, 20, first=21)
        assert sorted(await other.opaques(40)) == list(range(1, 41))
        assert sorted(await deaf.opaques(64 + MAX_LONG_ANSWERS)) == list(range(1, 65 + MAX_LONG_ANSWERS))


async def test_work_that_fails_leaves_the_turn_to_others() -> None:
    loop, calls = asyncio.get_running_loop(), []
    turn, done = Turn(loop, ManualClock()), loop.create_future()

    def fails(ends_at: float) -> bool:
        raise ZeroDivisionError

    def works(ends_at: float) -> bool:
        calls.append(ends_at)
        if len(calls) == 3:
            done.set_result(None)
        return len(calls) < 3

    loop.set_exception_handler(lambda loop, context: None)
    turn.share(fails)
    turn.share(works)
    turn.share(works)
    await done
    await asyncio.sleep(0)
    assert len(calls) == 3


async def test_slow_works_share_a_tenth_of_what_the_others_share_in_each_turn() -> None:
    clock = ManualClock()
    turn, served = Turn(asyncio.get_running_loop(), clock), {"usual": 0, "slow": 0}

    def work(name: str, ends_at: float) -> bool:
        while clock.monotonic() < ends_at:
            clock.advance(SLICE_S / 100)
            served[name] += 1
        return True

    turn.share(lambda ends_at: work("usual", ends_at))
    for _ in range(3):
        turn.share(lambda ends_at: work("slow", ends_at), is_slow=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert served["slow"] > 0
    assert 8 <= served["usual"] / served["slow"] <= 12
