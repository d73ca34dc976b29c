"""What only the server of h2corn does: it undoes what is not taken, serves again, and says if it is not installed."""

import asyncio
import sys
import time
from typing import Any

import grpc
import pytest

from proxy.config import GRPCIO, H2CORN, ProxyConfig
from proxy.server.byte_budget import ByteBudget
from proxy.server.choice import chosen, make_server
from proxy.server.protocol import Handler, Stream
from sprocket.common.errors import ConfigError
from tests.waiting import until

_WRITE_S = 0.4
_CONFIG = ProxyConfig(grpc_server=H2CORN, grpc_write_timeout_millis=int(_WRITE_S * 1000))
# So a client takes 64 KiB before it reads.
_SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0)]


class Answers:
    """A method that writes `parts` of 100 KB, and how often it ended and was not taken."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.ended = self.not_taken = 0

    async def serve(self, exchange: Stream) -> None:
        exchange.hold(0, self._count)
        try:
            for _ in range(self.parts):
                await exchange.write(bytes(100_000))
        finally:
            self.ended += 1

    def _count(self) -> None:
        self.not_taken += 1


def _made(answers: Answers) -> tuple[Any, int]:
    pytest.importorskip(H2CORN)
    server = make_server(
        {"/Test/Answers": Handler(answers.serve, False)}, _CONFIG, ByteBudget(1 << 28), is_shared=False
    )
    return server, server.listen("127.0.0.1", 0)


@pytest.mark.parametrize("parts", [5, 100], ids=["all is buffered", "some is buffered"])
async def test_answer_that_is_not_read_is_undone(parts: int) -> None:
    answers = Answers(parts)
    server, port = _made(answers)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_SMALL_WINDOW) as channel:
        stream = channel.unary_stream("/Test/Answers")(b"")
        await stream.read()
        await until(lambda: answers.not_taken == 1)
        assert answers.ended == 1
    await server.stop()


async def test_answer_of_a_call_that_is_cancelled_is_undone() -> None:
    answers = Answers(5)
    server, port = _made(answers)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_SMALL_WINDOW) as channel:
        stream = channel.unary_stream("/Test/Answers")(b"")
        await stream.read()
        await asyncio.sleep(0.1)
        stream.cancel()
        await until(lambda: answers.not_taken == 1)
    await server.stop()


async def test_answer_that_is_read_slowly_stays() -> None:
    answers = Answers(10)
    server, port = _made(answers)
    await server.start()
    begin = time.monotonic()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_SMALL_WINDOW) as channel:
        async for _ in channel.unary_stream("/Test/Answers")(b""):
            await asyncio.sleep(0.1)
        assert time.monotonic() - begin > 2 * _WRITE_S
        await asyncio.sleep(0.1)  # a client that goes is one that has not taken its answer
    await server.stop()
    assert (answers.ended, answers.not_taken) == (1, 0)


async def test_answer_that_is_read_stays() -> None:
    answers = Answers(50)
    server, port = _made(answers)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(3):
            assert len([part async for part in channel.unary_stream("/Test/Answers")(b"")]) == 50
    await server.stop()
    assert (answers.ended, answers.not_taken) == (3, 0)


async def test_server_that_ended_serves_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(H2CORN)
    import h2corn

    from proxy.server import h2corn_port

    begun: list[h2corn.Server] = []

    class Ending(h2corn.Server):
        async def serve(self) -> None:
            begun.append(self)
            await super().serve()
            if len(begun) == 1:
                raise OSError("accept failed")

    monkeypatch.setattr(h2corn_port, "Server", Ending)
    server, port = _made(Answers(1))
    await server.start()
    begun[0].shutdown()
    await until(lambda: len(begun) == 2)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream("/Test/Answers")(b"", wait_for_ready=True)
        assert len([part async for part in call]) == 1
    await asyncio.wait_for(server.stop(), 20)


def test_server_that_is_not_installed_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("h2corn_server", "h2corn_port"):
        monkeypatch.delitem(sys.modules, f"proxy.server.{name}", raising=False)
    monkeypatch.setitem(sys.modules, H2CORN, None)
    with pytest.raises(ConfigError, match=r"h2corn cannot be loaded.*sprocket-mq\[proxy\].*grpcServer = grpcio"):
        make_server({}, _CONFIG, ByteBudget(1 << 28), is_shared=False)


async def test_server_whose_compiled_part_cannot_be_loaded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = _made(Answers(1))
    monkeypatch.setitem(sys.modules, f"{H2CORN}._lib", None)
    with pytest.raises(ConfigError, match=r"cannot be served by h2corn: .*_lib.*set grpcServer = grpcio"):
        await server.start()
    await asyncio.wait_for(server.stop(), 20)


def test_auto_is_grpcio_only_where_h2corn_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(H2CORN)
    assert chosen(ProxyConfig()) == H2CORN
    monkeypatch.setitem(sys.modules, H2CORN, None)
    assert chosen(ProxyConfig()) == GRPCIO


def test_server_of_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="grpcServer = 'netty': allowed is auto, grpcio or h2corn"):
        ProxyConfig(grpc_server="netty").check()
