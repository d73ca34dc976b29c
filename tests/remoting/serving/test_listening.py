"""Ports: a wildcard address listens on both families, as RocketMQ's servers do."""

import asyncio
import socket

import pytest

from sprocket.remoting.serving.listening import bound, serve


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


async def greeting_at(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await reader.read()
    finally:
        writer.close()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
async def test_a_wildcard_address_serves_both_families_at_one_port(host: str) -> None:
    server = await bound(Greeting, host, 0)
    await serve(server)
    try:
        ports = {one.getsockname()[1] for one in server.sockets}
        assert len(ports) == 1
        (port,) = ports
        assert await greeting_at("127.0.0.1", port) == b"hello"
        if has_ipv6():
            assert await greeting_at("::1", port) == b"hello"
            with pytest.raises(OSError):
                await bound(Greeting, "::", port)
    finally:
        server.close()


async def test_another_address_serves_itself_alone() -> None:
    server = await bound(Greeting, "127.0.0.1", 0)
    await serve(server)
    try:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError):
            await greeting_at("::1", port)
    finally:
        server.close()
