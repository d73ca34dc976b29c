"""Connections of the dashboard's port: their number, their descriptors and the time of a request's head are limited.

aiohttp limits the time between requests alone: a browser, or a stranger, may begin a request and never end it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from sprocket.common.descriptors import DescriptorReserve

# One browser opens six.
MAX_CONNECTIONS: Final = 512
# Time for the head of a request, s: from the connection, or from the first byte after the previous request.
HEAD_LIMIT_S: Final = 10.0
_SWEEP_S: Final = 1.0


class Connections:
    """Table of open connections; `make` makes aiohttp's protocol of each.

    A connection is closed at once if there are too many, and at its deadline if no request of it arrived whole.
    """

    def __init__(self, descriptors: DescriptorReserve | None = None) -> None:
        self._descriptors = descriptors or DescriptorReserve()
        self._open: dict[asyncio.BaseTransport, _Watched] = {}
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def protocol(self, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Watched(self, make)

    def arrived(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the head of a request has arrived whole."""
        watched = None if transport is None else self._open.get(transport)
        if watched is not None:
            watched.until = None

    def start(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Begin to close connections at their deadline; `sleep` waits between two looks at them."""
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep(sleep))

    async def stop(self) -> None:
        """End it."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def _sweep(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await sleep(_SWEEP_S)
            self.close_late(loop.time())

    def close_late(self, now: float) -> None:
        """Close the connections whose deadline is before the loop time `now`."""
        for transport, watched in list(self._open.items()):
            if watched.until is not None and watched.until < now:
                cast(asyncio.Transport, transport).abort()

    # Called by connections

    def enter(self, transport: asyncio.BaseTransport, watched: "_Watched") -> bool:
        """Register a connection.  Return whether it may stay."""
        socket = transport.get_extra_info("socket")
        if len(self._open) >= MAX_CONNECTIONS or not self._descriptors.has_room(socket.fileno()):
            return False
        self._open[transport] = watched
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection."""
        self._open.pop(transport, None)


class _Watched(asyncio.Protocol):
    """Connection that passes everything on to aiohttp's protocol; `until` is its deadline, loop time."""

    def __init__(self, table: Connections, make: Callable[[], asyncio.Protocol]) -> None:
        self._table = table
        self._make = make
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._loop = asyncio.get_running_loop()
        self.until: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._table.enter(transport, self):
            cast(asyncio.Transport, transport).abort()
            return
        self._transport = transport
        self._begin()
        self._inner = self._make()
        self._inner.connection_made(transport)

    def _begin(self) -> None:
        self.until = self._loop.time() + HEAD_LIMIT_S

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            if self.until is None:
                self._begin()
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._table.leave(self._transport)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()
