"""The loop that drives an `Exchange` over one socket."""

import re
import socket
import struct
import time
from typing import Final

from benchmarks.system.exchanges import Exchange
from benchmarks.system.frames import FIRST_OPAQUE
from benchmarks.system.workload import LoadError, Result

_BUFFER_BYTES: Final = 8 << 20
_SILENCE_LIMIT_S: Final = 15.0
_PREFIX: Final = struct.Struct(">iI")
_CODE: Final = re.compile(rb'"code":(-?\d+)')
_OPAQUE: Final = re.compile(rb'"opaque":(\d+)')


def run(address: str, exchange: Exchange, seconds: float) -> Result:
    """Run the exchange for `seconds`, then until all requests have their responses.  Raises LoadError, OSError."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=_SILENCE_LIMIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.perf_counter()
        deadline = started + seconds
        reader = _Reader(connection, exchange)
        connection.sendall(exchange.begin())
        while time.perf_counter() < deadline:
            reader.turn(refill=True)
        while exchange.outstanding > 0:
            reader.turn(refill=False)
        exchange.settle(address)
        elapsed = time.perf_counter() - started
    return Result(exchange.messages, elapsed, sorted(exchange.latencies_us))


class _Reader:
    """Splits what comes into answers."""

    def __init__(self, connection: socket.socket, exchange: Exchange) -> None:
        self._connection = connection
        self._exchange = exchange
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._held = 0

    def turn(self, *, refill: bool) -> None:
        """One read, and one write for what it asks for."""
        received = self._connection.recv_into(self._view[self._held :])
        if not received:
            raise LoadError("the broker closed the connection")
        end = self._held + received
        following_frames, at = following(self._exchange, self._view[:end], refill=refill)
        self._held = end - at
        if at and self._held:
            self._buffer[: self._held] = self._buffer[at:end]
        self._connection.sendall(following_frames)


def following(exchange: Exchange, answers: memoryview, *, refill: bool) -> tuple[bytes, int]:
    """Return what to write after the whole answers at the begin of `answers`, and where they end."""
    at, end = 0, len(answers)
    frames = []
    while at + 8 <= end:
        length, header_bytes = _PREFIX.unpack_from(answers, at)
        if at + 4 + length > end:
            break
        header = bytes(answers[at + 8 : at + 8 + header_bytes])
        code, opaque = _CODE.search(header), _OPAQUE.search(header)
        if code is None or opaque is None:
            raise LoadError(f"not an answer: {header[:200]!r}")
        body = answers[at + 8 + header_bytes : at + 4 + length]
        slot = int(opaque[1]) - FIRST_OPAQUE
        frames.append(exchange.answered(int(code[1]), slot, header, body, refill))
        at += 4 + length
    return b"".join(frames), at
