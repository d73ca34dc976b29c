"""Attacks on HTTP/2 at both servers, which live and serve on.

With h2corn memory and log stay bounded, and others are served meanwhile.  With grpcio neither always holds:
docs/proxy.md has what was seen.
Sources: CVE-2019-9511 to 9518, CVE-2023-44487 (rapid reset), CVE-2024-27316 and others (CONTINUATION flood).
"""

import concurrent.futures
import contextlib
import itertools
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import grpc
import pytest

from proxy.config import H2CORN
from tests.proxy.http2_client import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    fields,
    frame,
)  # fmt: skip
from tests.proxy.server.test_servers import SERVERS

_PRIORITY, _RST_STREAM, _CONTINUATION = 2, 3, 9
_INITIAL_WINDOW, _MAX_WINDOW = 4, (1 << 31) - 1
_CONNECTIONS = 4
# What a connection sends at most.
_MAX_BYTES = 8 << 20
# A server that takes nothing for this time has stopped the attack.
_STUCK_S = 0.5
# Longer than calls that are not read live.
_STAY_S = 3.0
# grpcio is busy for half a minute after header bombs.
_SERVED_S = 120
_TRIES = 5
# What an attack of four connections may cost.
_MAX_GROWTH_BYTES = 96 << 20
_MAX_LOG_BYTES = 4096
_HELLO = PREFACE + frame(SETTINGS, 0, 0)


class Attacked:
    """The server's process."""

    def __init__(self, kind: str, open_files: int = 0) -> None:
        command = [sys.executable, "-m", "tests.proxy.server.attacked", kind]
        command += [str(open_files)] if open_files else []
        self._kind = kind
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._log, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.check()
        self.first_bytes = self.resident_bytes

    @property
    def resident_bytes(self) -> int:
        statm = Path(f"/proc/{self._process.pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def logged_bytes(self) -> int:
        return os.fstat(self._log.fileno()).st_size

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        made.settimeout(_STUCK_S)
        return made

    def check(self) -> None:
        """Check that a client is served; with grpcio, which cancels calls of others after floods, in a few tries."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        for left in reversed(range(1 if self._kind == H2CORN else _TRIES)):
            with grpc.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
                call = channel.unary_unary("/Test/Echo")
                try:
                    assert call(b"neighbour", timeout=_SERVED_S, wait_for_ready=True) == b"neighbour"
                except grpc.RpcError as error:
                    if not left or error.code() is not grpc.StatusCode.CANCELLED:
                        raise
                else:
                    return

    def end(self) -> None:
        """End it.  It must not have ended before."""
        assert self._process.poll() is None, "the server has crashed"
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(20) == 0
        self._log.close()


@contextlib.contextmanager
def _attacked(kind: str, open_files: int = 0) -> Iterator[Attacked]:
    server = Attacked(kind, open_files)
    yield server
    server.end()


def _head(path: str, **more: str) -> bytes:
    head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a", "te": "trailers"}
    return fields({**head, "content-type": "application/grpc", **more})


def _call(stream: int, path: str = "/Test/Echo", *, ended: bool = True) -> bytes:
    message = frame(DATA, END_STREAM if ended else 0, stream, struct.pack(">BI", 0, 3) + b"abc")
    return frame(HEADERS, END_HEADERS, stream, _head(path)) + message


def _streams() -> Iterator[int]:
    return itertools.count(1, 2)


def _rapid_reset() -> Iterator[bytes]:
    for stream in _streams():
        yield _call(stream) + frame(_RST_STREAM, 0, stream, struct.pack(">I", 8))


def _calls_without_reading() -> Iterator[bytes]:
    return (_call(stream) for stream in _streams())


def _continuations() -> Iterator[bytes]:
    yield frame(HEADERS, 0, 1, _head("/Test/Echo"))
    while True:
        yield frame(_CONTINUATION, 0, 1, fields({"x-more": "y" * 100}) * 10)


def _empty_continuations() -> Iterator[bytes]:
    yield frame(HEADERS, 0, 1, _head("/Test/Echo"))
    while True:
        yield frame(_CONTINUATION, 0, 1) * 100


def _table_bombs() -> Iterator[bytes]:
    """A field of 4,000 bytes goes into the table, and each call names it thousands of times with one byte."""
    name, value = b"x-bomb", b"z" * 4000
    indexed = b"\x40" + bytes([len(name)]) + name + b"\x7f" + bytes([0xA1, 0x1E]) + value
    yield frame(HEADERS, END_HEADERS | END_STREAM, 1, _head("/Test/Echo") + indexed)
    for stream in itertools.count(3, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, _head("/Test/Echo") + b"\xbe" * 15_000)


def _many_fields() -> Iterator[bytes]:
    for stream in _streams():
        block = _head("/Test/Echo") + fields({"a": ""}) * 3000
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream, block)


def _settings() -> Iterator[bytes]:
    while True:
        yield frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 70_000)) * 100


def _pings() -> Iterator[bytes]:
    while True:
        yield frame(PING, 0, 0, b"12345678") * 100


def _empty_data() -> Iterator[bytes]:
    yield _call(1, ended=False)
    while True:
        yield frame(DATA, 0, 1) * 100


def _priorities() -> Iterator[bytes]:
    for stream in _streams():
        yield frame(_PRIORITY, 0, stream, struct.pack(">IB", 0, 1)) * 100


def _window_updates() -> Iterator[bytes]:
    yield _call(1, ended=False)
    while True:
        yield frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 50 + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") * 50


def _closed_windows() -> Iterator[bytes]:
    yield frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 0))
    for stream in itertools.islice(_streams(), 1000):
        yield _call(stream, "/Test/Large" if stream % 4 == 1 else "/Test/Stream")


def _open_windows_unread() -> Iterator[bytes]:
    yield frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, _MAX_WINDOW))
    yield frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", _MAX_WINDOW - 65535))
    for stream in itertools.islice(_streams(), 1000):
        yield _call(stream, "/Test/Large" if stream % 4 == 1 else "/Test/Stream")


def _large_answers_unread() -> Iterator[bytes]:
    yield frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, _MAX_WINDOW))
    yield frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", _MAX_WINDOW - 65535))
    for stream in itertools.islice(_streams(), 1000):
        yield _call(stream, "/Test/Large")


def _huge_messages() -> Iterator[bytes]:
    for stream in itertools.islice(_streams(), 1000):
        yield frame(HEADERS, END_HEADERS, stream, _head("/Test/Echo"))
        yield frame(DATA, 0, stream, struct.pack(">BI", 0, (1 << 32) - 1) + bytes(1000))


def _unfinished_messages() -> Iterator[bytes]:
    """Each call announces the largest message that is allowed, and sends 1 KiB of it."""
    for stream in itertools.islice(_streams(), 1000):
        yield frame(HEADERS, END_HEADERS, stream, _head("/Test/Echo"))
        yield frame(DATA, 0, stream, struct.pack(">BI", 0, 4 << 20) + bytes(1000))


def _unending_padding() -> Iterator[bytes]:
    yield frame(HEADERS, END_HEADERS, 1, _head("/Test/Echo"))
    while True:
        yield frame(DATA, 8, 1, b"\xff" + bytes(255))


ENDLESS: tuple[Callable[[], Iterator[bytes]], ...] = (
    _rapid_reset, _calls_without_reading, _continuations, _empty_continuations, _table_bombs, _many_fields, _settings,
    _pings, _empty_data, _priorities, _window_updates, _closed_windows, _open_windows_unread, _large_answers_unread,
    _huge_messages, _unfinished_messages, _unending_padding,
)  # fmt: skip
# After these attacks the connections stay open, and what waits for them is there until its calls are ended.
UNREAD = {_calls_without_reading, _closed_windows, _open_windows_unread, _large_answers_unread}


def _attack(server: Attacked, frames: Iterable[bytes], stay_s: float, *, reads: bool) -> None:
    """Send frames until the server closes the connection, takes no more, or has taken enough.  Stay for `stay_s`."""
    with server.connect() as made:
        with contextlib.suppress(OSError):
            _send(made, frames, reads=reads)
        time.sleep(stay_s)


def _send(made: socket.socket, frames: Iterable[bytes], *, reads: bool) -> None:
    sent = 0
    made.sendall(_HELLO)
    for part in frames:
        made.sendall(part)
        sent += len(part)
        if reads:
            with contextlib.suppress(BlockingIOError):
                if made.recv(1 << 16, socket.MSG_DONTWAIT) == b"":
                    return
        if sent > _MAX_BYTES:
            return


@pytest.mark.parametrize("attack", ENDLESS, ids=lambda attack: attack.__name__.strip("_"))
@pytest.mark.parametrize("kind", SERVERS)
def test_floods_are_bounded(kind: str, attack: Callable[[], Iterator[bytes]]) -> None:
    with _attacked(kind) as server, concurrent.futures.ThreadPoolExecutor(_CONNECTIONS) as threads:
        stay_s = _STAY_S if attack in UNREAD else 0.0
        attacks = [
            threads.submit(_attack, server, attack(), stay_s, reads=number % 2 == 0) for number in range(_CONNECTIONS)
        ]  # fmt: skip
        peak_bytes = server.resident_bytes
        while not all(one.done() for one in attacks):
            if kind == H2CORN:
                server.check()
            peak_bytes = max(peak_bytes, server.resident_bytes)
        for one in attacks:
            one.result()
        server.check()
        if kind == H2CORN:
            assert max(peak_bytes, server.resident_bytes) - server.first_bytes < _MAX_GROWTH_BYTES
            assert server.logged_bytes < _MAX_LOG_BYTES


NONSENSE = {
    "nothing": b"",
    "part of the preface": PREFACE[:10],
    "garbage": bytes(range(256)) * 100,
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "upgrade to HTTP/2": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "garbage after the preface": PREFACE + bytes(range(256)) * 100,
    "no settings": PREFACE + _call(1),
    "even stream": _HELLO + _call(2),
    "smaller stream": _HELLO + _call(5) + _call(3),
    "stream zero": _HELLO + _call(0),
    "data of an idle stream": _HELLO + frame(DATA, 0, 7, b"x"),
    "data after the end": _HELLO + _call(1) + frame(DATA, END_STREAM, 1, bytes(10)) * 10,
    "no request": _HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, _head("/Test/Echo")),
    "half a message": _HELLO + frame(HEADERS, END_HEADERS, 1, _head("/Test/Echo")) + frame(DATA, END_STREAM, 1, b"\0"),
    "frame that is too large": _HELLO + b"\xff\xff\xff" + bytes([DATA, 0, 0, 0, 0, 1]) + bytes(100),
    "window that overflows": _HELLO + _call(1, ended=False) + frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff") * 2,
    "window of nothing": _HELLO + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    "table index that is not there": _HELLO + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\x0f"),
    "integer without end": _HELLO + frame(HEADERS, END_HEADERS, 1, b"\xff" * 1000),
    "huffman garbage": _HELLO + frame(HEADERS, END_HEADERS, 1, b"\x40\xff" + b"\xff" * 200),
    "two lengths": _HELLO + frame(HEADERS, END_HEADERS, 1, _head("/Test/Echo", **{"content-length": "1"}) + fields(
        {"content-length": "2"})) + frame(DATA, END_STREAM, 1, b"abc"),
    "connection field": _HELLO + frame(HEADERS, END_HEADERS, 1, _head("/Test/Echo", **{
        "transfer-encoding": "chunked"})) + frame(DATA, END_STREAM, 1, b"0\r\n\r\n"),
    "line break in a field": _HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, _head("/Test/Echo", x="a\r\nb: c")),
    "upper case": _HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, _head("/Test/Echo", **{"X-Upper": "a"})),
    "no path": _HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, fields({":method": "POST", ":scheme": "http"})),
    "pseudo field after others": _HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, _head("/Test/Echo") + fields(
        {":path": "/b"})),
    "no gRPC": _HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, fields(
        {":method": "GET", ":scheme": "http", ":path": "/", ":authority": "a"})),
    "websocket": _HELLO + frame(HEADERS, END_HEADERS, 1, fields({
        ":method": "CONNECT", ":protocol": "websocket", ":scheme": "http", ":path": "/", ":authority": "a",
        "sec-websocket-version": "13"})),
    "timeout that is none": _HELLO + frame(HEADERS, END_HEADERS, 1, _head("/Test/Echo", **{"grpc-timeout": "9H9"})),
    "no te": _HELLO + frame(HEADERS, END_HEADERS | END_STREAM, 1, fields({":method": "POST", ":scheme": "http",
        ":path": "/Test/Echo", ":authority": "a", "content-type": "application/grpc"})),
    "settings that are none": _HELLO + frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, 1 << 31)),
    "settings of odd size": _HELLO + frame(SETTINGS, 0, 0, b"abc"),
    "ping of odd size": _HELLO + frame(PING, 0, 0, b"abc"),
    "push promise": _HELLO + frame(5, END_HEADERS, 1, struct.pack(">I", 2) + _head("/Test/Echo")),
    "unknown frames": _HELLO + frame(99, 255, 3, bytes(1000)) * 100 + frame(SETTINGS, ACK, 0),
}  # fmt: skip


@pytest.mark.parametrize("kind", SERVERS)
def test_nonsense_harms_its_own_connection_alone(kind: str) -> None:
    with _attacked(kind) as server, contextlib.ExitStack() as stay:
        for name, raw in NONSENSE.items():
            made = stay.enter_context(server.connect())
            with contextlib.suppress(OSError):
                made.sendall(raw)
                answer = made.recv(1 << 16)
                assert b"neighbour" not in answer, name
        server.check()
        assert kind != H2CORN or server.logged_bytes < _MAX_LOG_BYTES


@pytest.mark.parametrize("kind", SERVERS)
def test_connections_that_say_nothing_or_little_leave_room_for_others(kind: str) -> None:
    with _attacked(kind) as server, contextlib.ExitStack() as stay:
        for number in range(600):
            made = stay.enter_context(server.connect())
            made.sendall((b"", PREFACE[:5], _HELLO, _HELLO + frame(HEADERS, 0, 1, _head("/Test/Echo")))[number % 4])
        server.check()
        assert server.resident_bytes - server.first_bytes < _MAX_GROWTH_BYTES


@pytest.mark.parametrize("kind", SERVERS)
def test_server_that_ran_out_of_descriptors_serves_again(kind: str) -> None:
    with _attacked(kind, open_files=200) as server:
        with contextlib.ExitStack() as stay:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    stay.enter_context(server.connect()).sendall(_HELLO)
        server.check()
