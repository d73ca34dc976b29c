"""HTTP/2 connection that costs little and obeys the test: thousands of idle clients, and clients that do not read.

gRPC's own client takes more memory than a server for each connection, and always reads.  Source of the frames:
RFC 9113 section 6; header fields are literals without indexing, RFC 7541 section 6.2.2.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final

from proxy.server.dispatcher import SERVICE
from sprocket.grpc_wire.metadata import CLIENT_ID

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
ACK, END_STREAM, END_HEADERS = 1, 1, 4
_FRAME_HEAD: Final = 9
_GRPC_HEAD: Final = 5
_MAX_STREAM_WINDOW: Final = (1 << 31) - 1
# Answers that are read are acknowledged in portions of this size.
_ACKNOWLEDGED_BYTES: Final = 16 * 1024


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(value: str) -> bytes:
    raw = value.encode()
    assert len(raw) < 0x7F, value
    return bytes([len(raw)]) + raw


def fields(table: dict[str, str]) -> bytes:
    """Return a header block."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in table.items())


class Http2Client(asyncio.Protocol):
    """One connection, for any number of clients.

    `on_message` gets the stream and the bytes of each message of an answer.  With `reads = False` the window of the
    connection is never opened again: the server can send 64 KiB of answers, and must keep the rest.
    """

    def __init__(self, on_message: Callable[[int, bytes], None], *, reads: bool = True) -> None:
        self._on_message = on_message
        self._reads = reads
        self._received = bytearray()
        self._messages: dict[int, bytearray] = {}
        self._unacknowledged = 0
        self._next_stream = 1
        self.is_closed = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        window = struct.pack(">HI", 4, _MAX_STREAM_WINDOW)  # of a stream: the connection's is the limit
        transport.write(PREFACE + frame(SETTINGS, 0, 0, window))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True

    def call(self, method: str, request: bytes, client_id: str, *, is_open: bool = False) -> int:
        """Send a call of a client with one request; return its stream.  `is_open` leaves it open for more requests."""
        assert self._transport is not None
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        head = {
            ":method": "POST", ":scheme": "http", ":path": f"/{SERVICE.full_name}/{method}", ":authority": "proxy",
            "content-type": "application/grpc", "te": "trailers", CLIENT_ID: client_id, "x-mq-language": "JAVA",
        }  # fmt: skip
        message = struct.pack(">BI", 0, len(request)) + request
        self._transport.write(
            frame(HEADERS, END_HEADERS, stream, fields(head))
            + frame(DATA, 0 if is_open else END_STREAM, stream, message)
        )
        return stream

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _FRAME_HEAD:
            end = _FRAME_HEAD + int.from_bytes(self._received[:3], "big")
            if len(self._received) < end:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self._received, 3)
            payload = bytes(self._received[_FRAME_HEAD:end])
            del self._received[:end]
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._transport.write(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind == DATA:
            self._take_data(stream, payload)
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self._messages.pop(stream, None)

    def _take_data(self, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        self._unacknowledged += len(payload)
        if self._reads and self._unacknowledged >= _ACKNOWLEDGED_BYTES:
            self._transport.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._unacknowledged)))
            self._unacknowledged = 0
        found = self._messages.setdefault(stream, bytearray())
        found += payload
        while len(found) >= _GRPC_HEAD:
            end = _GRPC_HEAD + int.from_bytes(found[1:_GRPC_HEAD], "big")
            if len(found) < end:
                break
            message = bytes(found[_GRPC_HEAD:end])
            del found[:end]
            self._on_message(stream, message)

    def close(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()


async def connect(
    port: int, on_message: Callable[[int, bytes], None] = lambda stream, message: None, *, reads: bool = True
) -> Http2Client:
    """Return a new connection to a port of this machine."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Http2Client(on_message, reads=reads), "127.0.0.1", port)
    return client
