"""The load generator's inner loop in Python, for machines without a C compiler.

Per read it finds the frames' ends, the opaques of all responses with one regular expression, checks all their
codes with one count, and writes the frames of the freed slots with one send.
"""

import re
import select
import socket
import ssl
import struct
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence

from benchmarks.system.frames import FIRST_OPAQUE, pull_parts, send_frames
from benchmarks.system.workload import OPEN, Access, LoadError, Result, Workload
from tests.compat import wire

_READ_BYTES = 1 << 16  # a larger buffer would be allocated by mmap for every read
_PULL_BUFFER_BYTES = 4 << 20
_LENGTH = struct.Struct(">i")
_PREFIX = struct.Struct(">iI")
_BINARY_HEAD = struct.Struct(">iIhBhi")  # length, mark and header length, code, language, version, opaque
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')
_SILENCE_LIMIT_S = 15.0


def run(
    address: str,
    topic: str,
    workload: Workload,
    seconds: float,
    offsets: Sequence[int],
    last_offset: int,
    access: Access = OPEN,
) -> Result:
    """Runs the workload; `offsets` are where each slot of a pull begins.  Raises LoadError, OSError."""
    connections = []
    try:
        for index in range(workload.connections):
            first = index * workload.slots
            own = offsets[first : first + workload.slots]
            connections.append(_connect(address, topic, workload, first, own, last_offset, access))
        return _run(connections, seconds, workload.stop_after)
    finally:
        for connection in connections:
            connection.socket.close()


def _connect(
    address: str, topic: str, workload: Workload, first: int, offsets: Sequence[int], last_offset: int, access: Access
) -> "_Connection":
    if workload.kind == "pull":
        return _Puller(address, access, topic, first, list(offsets), last_offset)
    frames = send_frames(topic, workload, connection=first // workload.slots, account=access.account)
    return (_BinarySender if workload.serialization == wire.ROCKETMQ else _JsonSender)(address, access, frames)


class _Connection(ABC):
    """One socket and its share of the window."""

    outstanding = 0

    def __init__(self, address: str, access: Access) -> None:
        host, port = address.rsplit(":", 1)
        plain = socket.create_connection((host, int(port)), timeout=_SILENCE_LIMIT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = _secured(plain) if access.has_tls else plain
        self.messages = 0
        self.latencies_us = array("d")

    @abstractmethod
    def fill(self) -> None:
        """Writes the first request of every slot."""

    @abstractmethod
    def turn(self, refill: bool) -> int:
        """One read, and a write for what it freed; returns how many requests it answered."""


def _secured(plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


class _Sender(_Connection):
    """SEND_MESSAGE_V2; one request is timed at any moment, a different slot each time."""

    def __init__(self, address: str, access: Access, frames: dict[int, bytes]) -> None:
        super().__init__(address, access)
        self._frames = {self.key(opaque): frame for opaque, frame in frames.items()}
        self.outstanding = len(frames)
        self._tail = b""
        self._timed: int | bytes | None = None
        self._timed_since = 0.0
        self._times = 0

    @abstractmethod
    def key(self, opaque: int) -> int | bytes:
        """An opaque as `parse` finds it."""

    @abstractmethod
    def parse(self, data: bytes) -> tuple[Sequence[int | bytes], int]:
        """The opaques of all whole responses and where these end.  Raises LoadError unless all are successes."""

    def fill(self) -> None:
        self.socket.sendall(b"".join(self._frames.values()))

    def turn(self, refill: bool) -> int:
        part = self.socket.recv(_READ_BYTES)
        if not part:
            raise LoadError("the broker closed the connection")
        data = self._tail + part if self._tail else part
        answered, end = self.parse(data)
        self._tail = data[end:]
        if answered:
            self._time(answered, refill)
            self.messages += len(answered)
            frames = self._frames
            try:
                following = b"".join([frames[opaque] for opaque in answered])
            except KeyError as stray:
                raise LoadError(f"opaque {stray} was never asked") from stray
            if refill:
                self.socket.sendall(following)
        return len(answered)

    def _time(self, answered: Sequence[int | bytes], refill: bool) -> None:
        now = time.perf_counter()
        if self._timed is not None and self._timed in answered:
            self.latencies_us.append((now - self._timed_since) * 1e6)
            self._timed = None
        if refill and self._timed is None:
            self._times += 1
            self._timed = answered[self._times % len(answered)]
            self._timed_since = now


class _JsonSender(_Sender):
    """JSON headers."""

    def key(self, opaque: int) -> bytes:
        return str(opaque).encode()

    def parse(self, data: bytes) -> tuple[Sequence[int | bytes], int]:
        end, count = 0, 0
        limit = len(data) - 4
        unpack = _LENGTH.unpack_from
        while end <= limit:
            after = end + 4 + unpack(data, end)[0]
            if after > limit + 4:
                break
            end = after
            count += 1
        answered = _OPAQUE.findall(data, 0, end)
        if len(answered) != count or data.count(b'"code":0,', 0, end) != count:
            raise LoadError(_explain(data[:end]))
        return answered, end


class _BinarySender(_Sender):
    """ROCKETMQ headers, whose opaque lies at a fixed place."""

    def key(self, opaque: int) -> int:
        return opaque

    def parse(self, data: bytes) -> tuple[Sequence[int | bytes], int]:
        at = 0
        answered: list[int | bytes] = []
        limit = len(data) - _BINARY_HEAD.size
        unpack = _BINARY_HEAD.unpack_from
        while at <= limit:
            length, mark, code, _, _, opaque = unpack(data, at)
            if at + 4 + length > len(data):
                break
            if code or mark >> 24 != wire.ROCKETMQ:
                raise LoadError(_explain(data[at : at + 4 + length]))
            answered.append(opaque)
            at += 4 + length
        return answered, at


class _Puller(_Connection):
    """PULL_MESSAGE; every slot walks a queue from a place of its own and begins again at the end."""

    def __init__(
        self, address: str, access: Access, topic: str, first: int, offsets: list[int], last_offset: int
    ) -> None:
        super().__init__(address, access)
        self.outstanding = len(offsets)
        self._parts = [
            pull_parts(topic, first + slot, FIRST_OPAQUE + slot, account=access.account) for slot in range(len(offsets))
        ]
        self._asked = offsets
        self._last_offset = last_offset
        self._sent_at = [0.0] * len(offsets)
        self._buffer = bytearray(_PULL_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._held = 0
        self._verified = False

    def fill(self) -> None:
        now = time.perf_counter()
        self._sent_at = [now] * len(self._asked)
        self.socket.sendall(b"".join(self._request(slot) for slot in range(len(self._asked))))

    def _request(self, slot: int) -> bytes:
        before, after = self._parts[slot]
        header = b"%b%d%b" % (before, self._asked[slot], after)
        return _PREFIX.pack(len(header) + 4, len(header)) + header

    def turn(self, refill: bool) -> int:
        received = self.socket.recv_into(self._view[self._held :])
        if not received:
            raise LoadError("the broker closed the connection")
        end = self._held + received
        at = 0
        answered: list[int] = []
        now = time.perf_counter()
        while at + 8 <= end:
            length, header_bytes = _PREFIX.unpack_from(self._buffer, at)
            if at + 4 + length > end:
                break
            slot = self._take(at + 8, at + 8 + header_bytes, at + 4 + length)
            self.latencies_us.append((now - self._sent_at[slot]) * 1e6)
            self._sent_at[slot] = now
            answered.append(slot)
            at += 4 + length
        self._held = end - at
        if at and self._held:
            self._buffer[: self._held] = self._buffer[at:end]
        if answered and refill:
            self.socket.sendall(b"".join(map(self._request, answered)))
        return len(answered)

    def _take(self, header_at: int, body_at: int, end: int) -> int:
        """Counts one response's messages and moves its slot on; returns the slot."""
        opaque = _OPAQUE.search(self._buffer, header_at, body_at)
        following = _NEXT_OFFSET.search(self._buffer, header_at, body_at)
        if opaque is None or following is None or self._buffer.find(b'"code":0,', header_at, body_at) < 0:
            raise LoadError(_explain(bytes(self._buffer[header_at - 8 : end])))
        slot = int(opaque[1]) - FIRST_OPAQUE
        offset = int(following[1])
        got = offset - self._asked[slot]
        if not self._verified:
            self._verify(body_at, end, got)
        self.messages += got
        self._asked[slot] = offset if offset <= self._last_offset else 0
        return slot

    def _verify(self, at: int, end: int, wanted: int) -> None:
        """Walks the records of one response: as many as its header's offsets say."""
        records = 0
        while at < end:
            at += _LENGTH.unpack_from(self._buffer, at)[0]
            records += 1
        if records != wanted or at != end:
            raise LoadError(f"a pull brought {records} records, its next offset says {wanted}")
        self._verified = True


def _explain(data: bytes) -> str:
    """The first response in `data` that is not a success, in words."""
    at = 0
    while at + 4 <= len(data):
        length = _LENGTH.unpack_from(data, at)[0]
        answer = wire.parse(data[at + 4 : at + 4 + length])
        if answer.code != 0:
            return f"code {answer.code}: {answer.remark}"
        at += 4 + length
    return f"responses do not match the requests: {data[:300]!r}"


def _run(connections: Sequence[_Connection], seconds: float, stop_after: int) -> Result:
    started = time.perf_counter()
    deadline = started + seconds
    for connection in connections:
        connection.fill()
    if len(connections) == 1:
        _run_one(connections[0], deadline, stop_after)
    else:
        _run_many(connections, deadline)
    elapsed = time.perf_counter() - started
    messages = sum(connection.messages for connection in connections)
    for connection in connections:
        _drain(connection)
    return Result(messages, elapsed, sorted(one for connection in connections for one in connection.latencies_us))


def _run_one(connection: _Connection, deadline: float, stop_after: int) -> None:
    turn = connection.turn
    while time.perf_counter() < deadline and (not stop_after or connection.messages < stop_after):
        turn(True)


def _run_many(connections: Sequence[_Connection], deadline: float) -> None:
    by_descriptor = {connection.socket.fileno(): connection for connection in connections}
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while time.perf_counter() < deadline:
            ready = poll.poll(_SILENCE_LIMIT_S)
            if not ready:
                raise LoadError(f"no response in {_SILENCE_LIMIT_S} s")
            for descriptor, _ in ready:
                by_descriptor[descriptor].turn(True)


def _drain(connection: _Connection) -> None:
    left = connection.outstanding
    while left > 0:
        left -= connection.turn(refill=False)
