"""What both HTTP/2 servers do: calls, streams, deadlines, limits, compression, health, TLS, and a stop."""

import asyncio
import gzip
import importlib.util
from typing import Any

import grpc
import pytest

from proxy.config import GRPCIO, H2CORN, ProxyConfig
from proxy.server.byte_budget import ByteBudget
from proxy.server.choice import make_server
from proxy.server.protocol import Aborted, Exchange, GrpcServer, Handler, Handlers, StatusCode, Unread
from sprocket.common.errors import ConfigError
from tests.waiting import until

SERVERS = [
    GRPCIO,
    pytest.param(H2CORN, marks=pytest.mark.skipif(importlib.util.find_spec(H2CORN) is None, reason="not installed")),
]
pytestmark = pytest.mark.parametrize("kind", SERVERS)
_LIMIT = 100_000


class Methods:
    """Handlers of a service `Test`, and what they have seen."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.hanging = 0  # calls of Hang that were begun
        self.seen: dict[str, Any] = {}
        self.remaining: float | None = None

    def handlers(self) -> Handlers:
        unary = {"Echo": self._echo, "Abort": self._abort, "Hang": self._hang, "Fail": self._fail}
        table = {f"/Test/{name}": Handler(serve, True) for name, serve in unary.items()}
        table["/Test/Chat"] = Handler(self._chat, False)
        table["/Test/Endless"] = Handler(self._endless, False)
        return table

    async def _echo(self, exchange: Exchange) -> bytes:
        self.seen = dict(exchange.invocation_metadata())
        self.seen["peer"] = exchange.peer()
        self.remaining = exchange.time_remaining()
        raw = await exchange.read()
        return raw if type(raw) is bytes else b"nothing"

    async def _abort(self, exchange: Exchange) -> bytes:
        raise Aborted(StatusCode.INVALID_ARGUMENT, "100% wrong: é\nline")

    async def _fail(self, exchange: Exchange) -> bytes:
        raise RuntimeError("unexpected")

    async def _hang(self, exchange: Exchange) -> bytes:
        self.hanging += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append("Hang")
            raise
        return b""

    async def _chat(self, exchange: Exchange) -> None:
        while type(raw := await exchange.read()) is bytes:
            await exchange.write(raw.upper())

    async def _endless(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(0.3):
                while True:
                    await exchange.write(bytes(50_000))
        except TimeoutError:
            raise Unread from None
        finally:
            self.cancelled.append("Endless")


class Running:
    """A server, its methods and a channel to it."""

    def __init__(self, kind: str, **settings: Any) -> None:
        limits: dict[str, Any] = {"grpc_max_inbound_message_size": _LIMIT, "grpc_max_inbound_metadata_size": 4096}
        self.config = ProxyConfig(grpc_server=kind, **{**limits, **settings})
        self.methods = Methods()
        self.server: GrpcServer = make_server(
            self.methods.handlers(), self.config, ByteBudget(1 << 28), is_shared=False
        )
        self.port = self.server.listen("127.0.0.1", 0)
        self.channel: Any = None

    async def __aenter__(self) -> "Running":
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self.server.stop()

    async def call(self, name: str, request: bytes = b"", **settings: Any) -> Any:
        return await self.channel.unary_unary(f"/Test/{name}")(request, **{"timeout": 20, **settings})

    async def refused(self, name: str, request: bytes = b"", **settings: Any) -> Any:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.call(name, request, **settings)
        return refused.value


async def test_calls_have_their_metadata_and_the_clients_address(kind: str) -> None:
    async with Running(kind) as running:
        metadata = (("x-name", "value"), ("x-raw-bin", b"\0\xff"))
        assert await running.call("Echo", b"request", metadata=metadata) == b"request"
        seen = running.methods.seen
        assert (seen["x-name"], seen["x-raw-bin"]) == ("value", b"\0\xff") and seen["peer"].startswith(
            "ipv4:127.0.0.1:"
        )
        assert running.methods.remaining is not None and 0 < running.methods.remaining < 21  # rounded up
        assert await running.call("Echo", b"", timeout=None) == b"" and running.methods.remaining is None


async def test_large_requests_and_answers_arrive_whole(kind: str) -> None:
    async with Running(kind, grpc_max_inbound_message_size=3_000_000) as running:
        body = bytes(range(256)) * 10_000
        assert await running.call("Echo", body) == body


async def test_statuses_have_their_code_and_their_text(kind: str) -> None:
    async with Running(kind) as running:
        aborted = await running.refused("Abort")
        assert aborted.code() is grpc.StatusCode.INVALID_ARGUMENT and aborted.details() == "100% wrong: é\nline"
        assert (await running.refused("Fail")).code() is grpc.StatusCode.UNKNOWN
        assert (await running.refused("None")).code() is grpc.StatusCode.UNIMPLEMENTED


async def test_deadlines_and_clients_that_go_cancel_the_handler(kind: str) -> None:
    async with Running(kind) as running:
        assert (await running.refused("Hang", timeout=0.2)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: running.methods.cancelled == ["Hang"])
        call = running.channel.unary_unary("/Test/Hang")(b"")
        await until(lambda: running.methods.hanging == 2)
        call.cancel()
        await until(lambda: running.methods.cancelled == ["Hang", "Hang"])
        running.channel.unary_unary("/Test/Hang")(b"")
        await until(lambda: running.methods.hanging == 3)
        await running.channel.close()
        await until(lambda: len(running.methods.cancelled) == 3)


async def test_messages_pass_a_stream_in_both_directions(kind: str) -> None:
    async with Running(kind) as running:
        chat = running.channel.stream_stream("/Test/Chat")()
        for word in (b"one", b"two"):
            await chat.write(word)
            assert await chat.read() == word.upper()
        await chat.done_writing()
        assert await chat.read() is grpc.aio.EOF and await chat.code() is grpc.StatusCode.OK


async def test_what_is_too_large_is_refused_by_its_size_alone(kind: str) -> None:
    async with Running(kind) as running:
        for request, metadata in ((bytes(_LIMIT + 1), ()), (b"", (("x-large", "x" * 5000),))):
            refused = await running.refused("Echo", request, metadata=metadata)
            assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        packed = await running.refused("Echo", bytes(_LIMIT * 50), compression=grpc.Compression.Gzip)
        assert packed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await running.call("Echo", b"x") == b"x"


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests_are_read(kind: str, compression: grpc.Compression) -> None:
    async with Running(kind) as running:
        body = b"again and again " * 1000
        assert (
            len(gzip.compress(body)) < len(body) and await running.call("Echo", body, compression=compression) == body
        )


async def test_stream_that_nobody_reads_ends_alone(kind: str) -> None:
    async with Running(kind, grpc_write_timeout_millis=300) as running:
        lazy = running.channel.unary_stream("/Test/Endless")(b"")
        await until(lambda: running.methods.cancelled == ["Endless"])
        assert await running.call("Echo", b"x") == b"x"
        lazy.cancel()


async def test_stop_ends_calls_that_do_not_end(kind: str) -> None:
    async with Running(kind) as running:
        call = running.channel.unary_unary("/Test/Hang")(b"")
        await until(lambda: running.methods.hanging == 1)
        await asyncio.wait_for(running.server.stop(), 60)
        assert running.methods.cancelled == ["Hang"]
        with pytest.raises(grpc.aio.AioRpcError):
            await call


async def test_port_of_another_process_is_refused(kind: str) -> None:
    async with Running(kind) as running:
        other = make_server({}, running.config, ByteBudget(1), is_shared=False)
        with pytest.raises(ConfigError, match=str(running.port)):
            other.listen("127.0.0.1", running.port)
            await other.start()
