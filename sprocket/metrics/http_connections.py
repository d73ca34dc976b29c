"""Connections of an HTTP port: their number, their descriptors, and the time of each request are limited.

Every HTTP port of a server has such a table: metrics, health, dashboard.  A browser, or a stranger, may begin a request
and never end it, or never read the answer; libraries limit the time between two requests alone.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from sprocket.common.descriptors import DescriptorReserve


class HttpConnections:
    """Table of open connections; the oldest is first.

    The head of a request may take `head_limit_s`, from the connection or from the first byte after the previous
    answer; then `answer_limit_s` begin, for the request's body and until the peer has the whole answer.  A connection
    that takes longer is aborted.  At most `max_connections` are open: one more takes the place of the oldest whose
    request has not arrived.
    """

    def __init__(
        self,
        max_connections: int,
        head_limit_s: float,
        answer_limit_s: float,
        descriptors: DescriptorReserve | None = None,
    ) -> None:
        self._max_connections = max_connections
        self.head_limit_s = head_limit_s
        self._answer_limit_s = answer_limit_s
        self._descriptors = descriptors or DescriptorReserve()
        self._open: dict[asyncio.BaseTransport, _Watched] = {}

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def protocol(self, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """Return the protocol of a new connection, which passes all on to the one that `make` makes."""
        return _Watched(self, make)

    @contextmanager
    def answering(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Make the answer to a request whose head has arrived whole; what arrives in between is its body."""
        watched = None if transport is None else self._open.get(transport)
        if watched is None:
            yield
            return
        watched.has_request = watched.is_answering = True
        watched.must_end_within(self._answer_limit_s)
        try:
            yield
        finally:
            watched.is_answering = False

    # Called by connections

    def enter(self, transport: asyncio.BaseTransport, watched: "_Watched") -> bool:
        """Register a connection.  Return whether it may stay."""
        if not self._descriptors.has_room(transport.get_extra_info("socket").fileno()):
            return False
        if len(self._open) >= self._max_connections:
            slow = next((one for one, other in self._open.items() if not other.has_request), None)
            if slow is None:
                return False
            self.leave(slow)
            cast(asyncio.Transport, slow).abort()
        self._open[transport] = watched
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection."""
        self._open.pop(transport, None)


class _Watched(asyncio.Protocol):
    """Connection that passes everything on; `has_request` is whether the head of its request has arrived whole."""

    def __init__(self, table: HttpConnections, make: Callable[[], asyncio.Protocol]) -> None:
        self._table = table
        self._make = make
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.has_request = False
        self.is_answering = False

    def must_end_within(self, seconds: float) -> None:
        """Abort the connection after some seconds, in place of an earlier limit."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._table.enter(transport, self):
            self._transport.abort()
            return
        self.must_end_within(self._table.head_limit_s)
        self._inner = self._make()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            if self.has_request and not self.is_answering:
                self.has_request = False
                self.must_end_within(self._table.head_limit_s)
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._table.leave(self._transport)
        self._transport = None
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()
