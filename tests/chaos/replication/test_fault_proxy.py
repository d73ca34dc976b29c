"""The link with faults itself: what passes, what does not, and who hears of it."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.replication.fault_proxy import WINDOW_BYTES, FaultProxy, Way

_LIMIT_S = 60.0


class Echo:
    """A server that sends back what it gets; it counts what it got and which connections have ended."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self.received_bytes = 0
        self.ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.received_bytes += len(data)
                    connection.sendall(data)
            except OSError:
                pass
        self.ended.set()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.address) as proxy:
        yield proxy


def connected(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), _LIMIT_S)


def received(connection: socket.socket, count: int) -> bytes:
    connection.settimeout(_LIMIT_S)
    content = b""
    while len(content) < count and (more := connection.recv(count - len(content))):
        content += more
    return content


def ask(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    return received(connection, len(words))


def until(condition: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def hears_nothing(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b"never"
    except TimeoutError:
        return True


def test_bytes_pass_both_ways_in_order(proxy: FaultProxy) -> None:
    words = bytes(range(256)) * 40_000  # ten times what is held
    with connected(proxy) as connection:
        sending = threading.Thread(target=connection.sendall, args=(words,))
        sending.start()
        assert received(connection, len(words)) == words
        sending.join()
    assert proxy.passed_bytes == {Way.THERE: len(words), Way.BACK: len(words)}


def test_an_end_is_passed_on(proxy: FaultProxy, echo: Echo) -> None:
    with connected(proxy) as connection:
        assert ask(connection, b"hello") == b"hello"
    assert echo.ended.wait(_LIMIT_S)


def test_what_is_delayed_comes_late(proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        assert ask(connection, b"now") == b"now"
        proxy.delay(0.1)
        began = time.monotonic()
        assert ask(connection, b"later") == b"later"
        assert time.monotonic() - began >= 0.19  # there and back; a lower bound holds on any machine


@pytest.mark.parametrize("way", [Way.THERE, Way.BACK, Way.BOTH])
def test_what_stands_still_comes_when_it_is_healed(proxy: FaultProxy, echo: Echo, way: Way) -> None:
    with connected(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        proxy.stall(way)
        connection.sendall(b"two")
        until(lambda: way is not Way.BACK or echo.received_bytes == 6)
        assert hears_nothing(connection)
        assert echo.received_bytes == (6 if way is Way.BACK else 3)
        proxy.heal()
        assert received(connection, 3) == b"two"


def test_a_stalled_sender_waits_and_nobody_hears_of_an_end(proxy: FaultProxy, echo: Echo) -> None:
    proxy.stall()
    with connected(proxy) as connection:
        connection.settimeout(0.3)
        sent, waits = 0, False
        while not waits:
            try:
                sent += connection.send(bytes(65536))
            except TimeoutError:
                waits = sent >= WINDOW_BYTES  # below that the proxy's thread has had no turn
            # What the proxy holds, and the kernel's buffers on the way.
            assert sent < WINDOW_BYTES + 32 * 1024 * 1024
    assert not echo.ended.wait(0.1)
    proxy.heal()
    assert echo.ended.wait(_LIMIT_S)


def test_a_cut_resets_and_refuses_until_it_is_healed(proxy: FaultProxy, echo: Echo) -> None:
    with connected(proxy) as connection:
        assert ask(connection, b"hello") == b"hello"
        proxy.cut()
        with pytest.raises(ConnectionError):
            connection.recv(1)
        assert echo.ended.wait(_LIMIT_S)
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
        proxy.heal()
        with connected(proxy) as again:
            assert ask(again, b"hello") == b"hello"


def test_half_open_ends_at_one_side_only(proxy: FaultProxy, echo: Echo) -> None:
    with connected(proxy) as connection:
        assert ask(connection, b"hello") == b"hello"
        proxy.half_open()
        assert echo.ended.wait(_LIMIT_S)
        connection.sendall(b"into the void")
        assert hears_nothing(connection)
        with connected(proxy) as other:
            other.sendall(b"hello?")
            until(lambda: proxy.connections == 2)
            assert hears_nothing(other)
            proxy.heal()
            other.settimeout(_LIMIT_S)
            with pytest.raises(ConnectionResetError):
                other.recv(1)
    assert echo.received_bytes == 5
