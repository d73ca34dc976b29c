"""What the proxy asks of a gRPC server: handlers that take and return bytes, ports, a start and a stop.

`grpcio_server` and `h2corn_server` are such servers, and `choice` makes the one that the operator has chosen.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

# At a stop, the time that calls under way have to end, in s.
GRACE_S: Final = 1.0


class StatusCode(IntEnum):
    """Codes with which a call can be aborted.  Source: gRPC, `doc/statuscodes.md`."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class Aborted(Exception):
    """A handler ends its call with a status that is not OK."""

    def __init__(self, code: StatusCode, text: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Unread(Exception):
    """A handler gives up a call whose answer the client does not read.  No status can be sent; the call ends unsaid."""


class Exchange(Protocol):
    """One call as its handler sees it.  The names are those of grpcio's context.

    If the client goes or its deadline passes, the handler's task is cancelled.
    """

    def peer(self) -> str:
        """Return the client's address: ``ipv4:10.0.0.1:4711`` or ``ipv6:[::1]:4711``."""

    def invocation_metadata(self) -> Mapping[str, Any] | Iterable[tuple[str, Any]]:
        """Return names and values: str, or bytes where a name ends with ``-bin``."""

    def time_remaining(self) -> float | None:
        """Return the time to the client's deadline, in s; None without one."""

    async def read(self) -> Any:
        """Return the next message as bytes, or another object if the client has sent its last."""

    async def write(self, message: bytes) -> None:
        """Send a message.  It may wait until the client reads."""


# Undoes what an answer did that the client has not taken.
NotTaken = Callable[[], None]


class Stream(Exchange, Protocol):
    """A call whose answer is a stream."""

    def check_room(self) -> None:
        """Raise Refusal if the connection has too much unread for `hold` to take anything."""

    def hold(self, size: int, not_taken: NotTaken | None = None) -> None:
        """Count bytes that the handler keeps for its answer until it ends.  Raises Refusal if they are too many.

        If the server takes messages before the client reads them, and the client then does not, it calls `not_taken`.
        """


class Handler(NamedTuple):
    """Handler of one method.  `serve` gets an `Exchange` and returns the answer if the method `is_unary`.

    Else it gets a `Stream` and writes its messages.  It may raise `Aborted`, and `Unread` if it is not unary.
    """

    serve: Callable[[Any], Awaitable[bytes | None]]
    is_unary: bool


# By path: ``/package.Service/Method``.
Handlers = Mapping[str, Handler]


class Certificate(NamedTuple):
    """Certificate chain and private key of a port, in PEM."""

    chain: bytes
    key: bytes


class GrpcServer(Protocol):
    """gRPC server of one listener.  It is created inside a running event loop."""

    def listen(self, host: str, port: int, certificate: Certificate | None = None) -> int:
        """Bind a port, with TLS if there is a certificate.  Return its number.  Raises ConfigError."""

    async def start(self) -> None:
        """Serve.  Raises ConfigError."""

    async def stop(self) -> None:
        """Take no new calls; those under way have `GRACE_S` to end."""
