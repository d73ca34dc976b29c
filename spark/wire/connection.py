"""Blocking connection of the remoting protocol: requests in one write, their responses in order.

Tasks need no event loop: a pull is one request and one large response.
"""

import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Final, Self

from sprocket.common.errors import ProtocolError
from sprocket.remoting.client import ConnectFailed, split_address
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import FrameDecoder
from sprocket.remoting.headers.base import Header, to_ext_fields
from sprocket.remoting.pending import ConnectionLost, RemotingTimeout
from sprocket.remoting.routes import RouteTable, UnroutableRequest

_READ_BYTES: Final = 1 << 18
_MAX_OPAQUE: Final = 2**31 - 1
# Factor for the time limit of a request while its server keeps sending.
_SENDING: Final = 10

# Code and header of a request; none has a body here.
Asked = tuple[int, Header | None]


@dataclass(frozen=True)
class ConnectionSettings:
    """Settings of connections to servers."""

    timeout_s: float = 3.0
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None


class WireConnection:
    """Connection to `address`.  Raises ConnectFailed."""

    def __init__(self, address: str, settings: ConnectionSettings) -> None:
        self.address = address
        self._settings = settings
        self._decoder = FrameDecoder()
        self._routes = RouteTable([])
        self._opaques = count(1)
        self.is_closed = False
        try:
            host, port = split_address(address)
            plain = socket.create_connection((host, port), settings.timeout_s)
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"connect to {address}: {error}") from None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if settings.tls is None else settings.tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise ConnectFailed(f"connect to {address}: TLS: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()

    def invoke_all(self, requests: Sequence[Asked]) -> list[ReceivedResponse]:
        """Return the responses to `requests`, in order; all requests are sent before the first response.

        Fails if the server is silent for the limit of a request, or sends without an end.  After an error the
        connection is closed.  Raises ConnectionLost, RemotingTimeout, ProtocolError.
        """
        opaques = [next(self._opaques) % _MAX_OPAQUE for _ in requests]
        frames = [self._encoded(code, header, at) for (code, header), at in zip(requests, opaques, strict=True)]
        received: dict[int, ReceivedResponse] = {}
        limit_s = self._settings.timeout_s * _SENDING * len(requests)
        deadline = time.monotonic() + limit_s
        try:
            self._socket.settimeout(self._settings.timeout_s)
            self._socket.sendall(b"".join(frames))
            while len(received) < len(requests):
                self._receive(received)
                if len(received) < len(requests) and time.monotonic() > deadline:
                    self.close()
                    raise RemotingTimeout(f"{self.address}: {len(requests)} answers are not whole in {limit_s:g} s")
        except TimeoutError:
            self.close()
            raise RemotingTimeout(
                f"{self.address}: nothing came for {self._settings.timeout_s:g} s (mqClientApiTimeout)"
            ) from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {error}") from None
        except ProtocolError:
            self.close()
            raise
        return [received[opaque] for opaque in opaques]

    def _encoded(self, code: int, header: Header | None, opaque: int) -> bytes:
        fields = {} if header is None else to_ext_fields(header)
        credentials = self._settings.credentials
        return encode_request(code, opaque, fields if credentials is None else credentials.signed(fields, b""))

    def _receive(self, received: dict[int, ReceivedResponse]) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        for frame in self._decoder.feed(data):
            try:
                decoded = self._routes.decode(frame)
            except UnroutableRequest:  # notifications for consumer groups, ignored here
                continue
            if isinstance(decoded, ReceivedResponse):
                received[decoded.opaque] = decoded
        if self._decoder.error is not None:
            raise self._decoder.error


def pause(seconds: float) -> None:
    """Wait before a request is tried again."""
    time.sleep(seconds)
