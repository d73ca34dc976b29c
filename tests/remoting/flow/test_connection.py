"""The compiled connection does with any bytes what its twin does: handlers called, responses, counts, times, errors."""

import asyncio
import random
from typing import Any

import pytest

from sprocket.common.errors import ProtocolError
from sprocket.common.revision import Revision
from sprocket.engine.choice import native
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.frames import encode_request, encode_response
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, Frames
from sprocket.remoting.refusals import refusal_of
from sprocket.remoting.routes import (
    Action,
    CodeFrames,
    FramesChannel,
    NoHeader,
    Resource,
    Route,
    RouteTable,
    Traffic,
    UnroutableRequest,
)
from sprocket.remoting.serving.rpc_latency import RpcLatency
from tests.fuzz.mutation import damaged
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.send_targets import Output
from tests.tiers import seeds

signatures: Any = native("sprocket.remoting.signatures_native")
pytestmark = pytest.mark.skipif(
    native("sprocket.remoting.flow.connection_native") is None, reason="the compiled engine is not built"
)

_AT_ONCE, _PUT_OFF, _SINGLE = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT
_CODES = (_AT_ONCE, _AT_ONCE, _PUT_OFF, _SINGLE, RequestCode.POP_MESSAGE)


class Resumable(Output):
    """Output of a connection that is read again."""

    def resume_reading(self) -> None: ...


class TwinChannel(RemotingChannel):
    """Every read and every response takes the way of the twin."""

    def data_received(self, data: bytes) -> None:
        self.receive(data)

    def answer_frames(self, *arguments: Any, **more: Any) -> None:
        self.send_frames(*arguments, **more)


class Handler:
    """Serves up to three frames of a call; a body tells which frames it leaves, and which it fails at."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.revision = Revision()
        self._waiting: list[tuple[int, FramesChannel]] = []

    def routes(self) -> list[Route]:
        at_once = CodeFrames(_AT_ONCE, self._serve, None, self._prove)
        put_off = CodeFrames(_PUT_OFF, self._serve, self._settle, self._prove)
        return [
            Route(_AT_ONCE, NoHeader, self._one, Resource.NONE, Action.NONE, Traffic.SEND, frames=at_once),
            Route(_PUT_OFF, NoHeader, self._one, Resource.NONE, Action.NONE, Traffic.PULL, frames=put_off),
            Route(_SINGLE, NoHeader, self._one, Resource.NONE, Action.NONE),
        ]

    def _serve(self, code: int, frames: Frames, index: int, channel: FramesChannel) -> int:
        served = 0
        for _, header, body in frames[index : index + 3]:
            if body.startswith(b"f"):
                raise ProtocolError("header", "the handler cannot read it")
            if body.startswith(b"u") or str(code).encode() not in header:
                break
            served += 1
        if served:
            self.calls.append((code, len(frames), index, served))
        if served and code == _PUT_OFF:
            self._waiting.append((served, channel))
        elif served:
            self._answer(code, served, channel)
        return served

    def guarded(self, table: RouteTable) -> RouteTable:
        """Return the table behind a guard that admits most frames, and then lets others of their codes prove it."""

        def guard(frame: Frame, channel: RemotingChannel) -> Any:
            self.calls.append("guard")
            try:
                decoded = table.decode(frame)
            except UnroutableRequest as error:
                channel.reply(error.request, refusal_of(error))
                return None
            if not isinstance(decoded, tuple):
                return decoded
            if frame[2].startswith(b"u"):
                channel.reply(decoded[1], Response(1))
                return None
            key = signatures.SigningKey("alice", "secret")
            channel.proofs[decoded[0].code] = signatures.Proof(key, 1, (self.revision,), (self.revision.number,))
            return decoded

        return table.behind(guard)

    def _prove(self, code: int, frames: Frames, index: int, channel: FramesChannel, proof: Any) -> int:
        assert proof.holds()
        served = self._serve(code, frames, index, channel)
        if served:
            self.calls.append("proved")
        return served

    def _answer(self, code: int, served: int, channel: FramesChannel) -> None:
        frames = b"".join(bytes(piece) for n in range(served) for piece in encode_response(Response(0), n, JSON))
        channel.answer_frames(code, served, frames, 0, channel.read_at, was_later=code == _PUT_OFF and served == 2)

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for served, channel in waiting:
            self.calls.append("settled")
            self._answer(_PUT_OFF, served, channel)

    def _one(self, request: Request[Any]) -> Response:
        self.calls.append(("one", request.code, request.body))
        return Response(0, body=b"x" * 100)


def outcome(channel_type: type[RemotingChannel], pieces: list[bytes], *, is_guarded: bool = False) -> list[Any]:
    """Serve the pieces; return all that can be seen of it."""

    async def run() -> list[Any]:
        handler, output, counters, latency = Handler(), Resumable(), ChannelCounters(), RpcLatency()
        table = RouteTable(handler.routes(), latency=latency)
        if is_guarded:
            table = handler.guarded(table)
        channel = channel_type(table, counters)
        channel.connection_made(output)  # type: ignore[arg-type]
        seen: list[Any] = []
        for number, piece in enumerate(pieces):
            if output.is_closed:
                break
            if number % 7 == 6:
                channel.hold()
            channel.data_received(piece)
            if number % 7 == 6:
                channel.serve(table)
            if number % 5 == 4:
                handler.revision.rise()
            if number % 3 == 2:
                await asyncio.sleep(0)
            seen.append((channel.partial_at is None, channel.partial_bytes, len(b"".join(output.written))))
        await asyncio.sleep(0)
        table.settle()
        await asyncio.sleep(0)
        samples = sorted((labels, latencies.count) for labels, latencies in latency.metric().read())
        return [
            handler.calls,
            seen,
            output.written,
            output.is_closed,
            counters,
            dict(table.refusals.by_reason),
            samples,
        ]

    return asyncio.run(run())


def frame(code: int, number: int, body: bytes, serialization: int) -> bytes:
    return encode_request(code, number, {}, len(body), serialization=serialization) + body


@pytest.mark.parametrize("seed", seeds(120, quick=20))
def test_any_bytes_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    serialization = chance.choice((JSON, ROCKETMQ))
    bodies = (b"s", b"s", b"s" * 200, b"u", b"s" * 20_000, b"f") if seed % 4 == 3 else (b"s", b"s", b"u", b"")
    reads = [
        b"".join(frame(chance.choice(_CODES), n, chance.choice(bodies), serialization) for n in range(count))
        for count in chance.choices((1, 1, 1, 2, 5, 40), k=12)
    ]
    if seed % 5 == 4:
        reads = [*reads[:4], *pieces_of(damaged(b"".join(reads), chance))]
    elif seed % 5 == 3:
        reads = pieces_of(b"".join(reads))
    for is_guarded in (False, True):
        found = outcome(RemotingChannel, reads, is_guarded=is_guarded)
        assert found == outcome(TwinChannel, reads, is_guarded=is_guarded)


def test_behind_a_guard_frames_are_proved_until_it_changes() -> None:
    """Or until the connection gets other routes, after the seventh read."""
    reads = [frame(_AT_ONCE, n, b"s", JSON) for n in range(9)]
    calls = outcome(RemotingChannel, reads, is_guarded=True)[0]
    seen = ["guard" if call == "guard" else "proved" for call in calls if call in ("guard", "proved")]
    assert seen == ["guard", *["proved"] * 4, "guard", "guard", "proved", "proved"]


def test_a_handler_that_fails_closes_only_for_what_the_peer_sent() -> None:
    reads = [frame(_AT_ONCE, 1, b"s", JSON), frame(_AT_ONCE, 2, b"f", JSON), frame(_AT_ONCE, 3, b"s", JSON)]
    calls, _, written, is_closed, counters, *_ = outcome(RemotingChannel, reads)
    assert (calls, len(written), is_closed) == ([(_AT_ONCE, 1, 0, 1)], 1, True)
    assert counters.protocol_errors == {"header": 1}
