"""Intake of requests: how many are read at a time, and how many bytes are served, for each connection and for all.

gRPC's core collects a message before it tells its size.  So each request that is being read counts as the largest one.
If too many are, the oldest of the busiest connection ends: requests usually arrive at once with their calls.  What is
not read waits at the client, because HTTP/2 lets it send 64 KiB before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from proxy.status import Refusal
from sprocket.common import limits
from sprocket.grpc_wire import messaging_pb2 as wire

Peer = tuple[str, int]
# Part of everything that one connection may have.
_SHARE: Final = 4
# While others wait for the places of their connection, a request has this time to arrive.
_HURRIED_S: Final = 1.0


class _Connection:
    """Calls of one connection, and its `places` for requests that are being read."""

    __slots__ = ("_loop", "_timer", "_waiting", "bytes", "calls", "places", "reading")

    def __init__(self, places: int) -> None:
        self.calls = 0
        self.bytes = 0
        self.places = places
        self.reading: dict[asyncio.Timeout, float] = {}  # since when, loop time; oldest first
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def enter(self) -> None:
        """Take a place, or wait for one."""
        if self.places:
            self.places -= 1
            return
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        if self._timer is None:
            self._timer = self._loop.call_later(_HURRIED_S, self._hurry)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiting.remove(waiter)
            else:
                self.leave()
            raise

    def leave(self) -> None:
        """Give a place back.  The newest call gets it: those that wait for long may never send a request."""
        if self._waiting:
            self._waiting.pop().set_result(None)
        else:
            self.places += 1

    def _hurry(self) -> None:
        self._timer = self._loop.call_later(_HURRIED_S / 2, self._hurry) if self._waiting else None
        now = self._loop.time()
        for scope, since in self.reading.items():
            if self._waiting and now - since >= _HURRIED_S:
                _end(scope, now)


class Intake:
    """Intake of one proxy.  `max_bytes` is for the requests that are served, `max_request_bytes` for one of them."""

    def __init__(self, max_bytes: int, max_request_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_readers = max(_SHARE, limits.MAX_PARTIAL_BYTES // max_request_bytes)
        self._connections: dict[Peer, _Connection] = {}
        self._readers = 0
        self.in_flight_bytes = 0

    def __len__(self) -> int:
        """Return the number of connections with calls."""
        return len(self._connections)

    async def read(self, peer: Peer, read: Callable[[], Awaitable[Any]]) -> bytes:
        """Return the request that `read` brings, and count it until `done`.  Raises Refusal."""
        connection = self._connections.get(peer)
        if connection is None:
            connection = self._connections[peer] = _Connection(self._max_readers // _SHARE)
        connection.calls += 1
        try:
            await connection.enter()
            try:
                raw = await self._read(connection, read)
            finally:
                connection.leave()
            if type(raw) is not bytes:
                raise Refusal(wire.BAD_REQUEST, "the call ended without a request")
            if self._is_over(self.in_flight_bytes, len(raw), self._max_bytes):
                raise Refusal(wire.TOO_MANY_REQUESTS, "flow limit (grpcMaxInFlightSize): call later")
            if self._is_over(connection.bytes, len(raw), self._max_bytes // _SHARE):
                raise Refusal(wire.TOO_MANY_REQUESTS, "flow limit of a connection (grpcMaxInFlightSize): call later")
        except BaseException:
            self._left(peer, connection)
            raise
        self.in_flight_bytes += len(raw)
        connection.bytes += len(raw)
        return raw

    def done(self, peer: Peer, size: int) -> None:
        """Forget a request of `size` bytes that `read` returned."""
        connection = self._connections[peer]
        self.in_flight_bytes -= size
        connection.bytes -= size
        self._left(peer, connection)

    def _left(self, peer: Peer, connection: _Connection) -> None:
        connection.calls -= 1
        if not connection.calls:
            del self._connections[peer]

    @staticmethod
    def _is_over(used: int, size: int, limit: int) -> bool:
        # One request may be larger than all together.
        return used > 0 and used + size > limit

    async def _read(self, connection: _Connection, read: Callable[[], Awaitable[Any]]) -> Any:
        if self._readers >= self._max_readers:
            self._end_oldest()
        try:
            async with asyncio.timeout(limits.FRAME_DEADLINE_S) as scope:
                connection.reading[scope] = asyncio.get_running_loop().time()
                self._readers += 1
                try:
                    return await read()
                finally:
                    if scope in connection.reading:
                        del connection.reading[scope]
                        self._readers -= 1
        except TimeoutError:
            raise Refusal(wire.TOO_MANY_REQUESTS, "the request did not arrive in time, call again") from None

    def _end_oldest(self) -> None:
        busiest = max(self._connections.values(), key=lambda one: len(one.reading))
        scope = next(iter(busiest.reading))
        del busiest.reading[scope]
        self._readers -= 1
        _end(scope, asyncio.get_running_loop().time())


def _end(scope: asyncio.Timeout, now: float) -> None:
    if not scope.expired():  # it may be on its way out
        scope.reschedule(now)
