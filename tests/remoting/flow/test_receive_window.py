"""How a peer is held back that sends more than is served, and let go: with a socket that only remembers its options."""

import asyncio
import socket
from typing import cast

import pytest

from sprocket.remoting.flow.receive_window import NARROW_BYTES, ReceiveWindow
from sprocket.remoting.frames import encode_request
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings

CLAMP = (socket.IPPROTO_TCP, 10)
SIZE = (socket.SOL_SOCKET, socket.SO_RCVBUF)
LOCKS = (socket.SOL_SOCKET, 72)
USUAL = {CLAMP: 6_000_000, SIZE: 6_291_456, LOCKS: 1}
_RCVBUF_LOCK = 2

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_WINDOW_CLAMP"), reason="Linux has TCP_WINDOW_CLAMP")


class Options:
    """The options of a socket, as Linux keeps them: it doubles the size of a buffer, and remembers that it was set."""

    def __init__(self, known: dict[tuple[int, int], int]) -> None:
        self.values = dict(known)

    def getsockopt(self, level: int, name: int) -> int:
        try:
            return self.values[level, name]
        except KeyError:
            raise OSError("not known") from None

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.getsockopt(level, name)
        self.values[level, name] = 2 * value if (level, name) == SIZE else value
        if (level, name) == SIZE:
            self.values[LOCKS] |= _RCVBUF_LOCK


def window(options: Options) -> ReceiveWindow:
    return ReceiveWindow(cast(socket.socket, options))


def test_first_the_window_then_the_buffer_when_what_was_under_way_has_come() -> None:
    options = Options(USUAL)
    held = window(options)
    held.narrow(300_000, 1.0)
    assert held.is_narrow and options.values == USUAL | {CLAMP: NARROW_BYTES}
    for left_bytes, now in ((0, 1.05), (500_000, 2.0)):  # it may still come; it comes
        held.narrow(left_bytes, now)
        assert options.values[SIZE] == USUAL[SIZE]
    held.narrow(0, 3.0)
    assert options.values == {CLAMP: NARROW_BYTES, SIZE: 4 * NARROW_BYTES, LOCKS: 1 | _RCVBUF_LOCK}
    held.narrow(0, 9.0)
    assert options.values[SIZE] == 4 * NARROW_BYTES
    held.widen()
    assert not held.is_narrow and options.values == USUAL


def test_a_full_buffer_is_made_small_too_for_nothing_is_under_way() -> None:
    options = Options(USUAL)
    held = window(options)
    held.narrow(0, 1.0)
    held.narrow(5_000_000, 2.0)
    assert options.values[SIZE] == 4 * NARROW_BYTES


def test_it_is_let_go_before_its_buffer_was_changed() -> None:
    options = Options(USUAL)
    held = window(options)
    held.narrow(0, 1.0)
    held.widen()
    assert options.values == USUAL


@pytest.mark.parametrize("missing", [LOCKS, CLAMP, SIZE])
def test_an_older_system_or_a_socket_that_is_closed_stays_as_it_is(missing: tuple[int, int]) -> None:
    options = Options({name: value for name, value in USUAL.items() if name != missing})
    held = window(options)
    for step in range(3):
        held.narrow(0, float(step))
    held.widen()
    assert not held.is_narrow


def test_a_size_that_the_operator_set_is_kept() -> None:
    set_already = USUAL | {LOCKS: _RCVBUF_LOCK}
    options = Options(set_already)
    held = window(options)
    for step in range(3):
        held.narrow(0, float(step))
    assert not held.is_narrow and options.values == set_already
    ReceiveWindow(None).narrow(0, 1.0)


@pytest.mark.parametrize("option", [socket.SO_RCVBUF, socket.SO_SNDBUF])
async def test_buffers_that_the_operator_sets_are_those_of_connections(option: int) -> None:
    # What the system makes of a size is its own affair.
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, option, 40_000)
        expected = one.getsockopt(socket.SOL_SOCKET, option)
    sizes = (40_000, 0) if option == socket.SO_RCVBUF else (0, 40_000)
    server = RemotingServer(RouteTable([]), ConnectionSettings("127.0.0.1", 120, *sizes))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(encode_request(34, 1))
    assert await asyncio.wait_for(reader.readexactly(4), 60)
    (channel,) = server.channels.values()
    assert channel._transport is not None
    assert channel._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, option) == expected
    writer.close()
    await server.stop()
