"""Intake of requests: how many are read at a time, and how many bytes are served, for each connection and for all.

gRPC's core collects a message before it tells its size.  So each request that is being read counts as the largest one.
If too many are, the oldest of the busiest connection ends: requests usually arrive at once with their calls.  What is
not read waits at the client, because HTTP/2 lets it send 64 KiB before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from proxy.server.byte_budget import SHARE, ByteBudget
from proxy.status import Refusal
from sprocket.common import limits
from sprocket.grpc_wire import messaging_pb2 as wire

Peer = tuple[str, int]
# While others wait for the places of their connection, a request has this time to arrive.
_HURRIED_S: Final = 1.0


class _Connection:
    """Calls of one connection, and its `places` for requests that are being read.

    `end` ends the reading of a request.
    """

    __slots__ = ("_end", "_loop", "_timer", "_waiting", "calls", "places", "reading")

    def __init__(self, places: int, end: Callable[["asyncio.Task[Any]"], None]) -> None:
        self._end = end
        self.calls = 0
        self.places = places
        self.reading: dict[asyncio.Task[Any], float] = {}  # since when, loop time; oldest first
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def enter(self) -> None:
        """Wait for a place, and take it."""
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
        for task, since in self.reading.items():
            if self._waiting and now - since >= _HURRIED_S:
                self._end(task)


class Intake:
    """Intake of one proxy.  `max_bytes` is for the requests that are served, `max_request_bytes` for one of them."""

    def __init__(self, max_bytes: int, max_request_bytes: int) -> None:
        self._budget = ByteBudget(max_bytes)
        self._max_readers = max(SHARE, limits.MAX_PARTIAL_BYTES // max_request_bytes)
        self._connections: dict[Peer, _Connection] = {}
        self._readers = 0
        self._ended: set[asyncio.Task[Any]] = set()  # tasks that read too long
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of connections with calls."""
        return len(self._connections)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of the requests that are served."""
        return self._budget.taken_bytes

    async def read(self, peer: Peer, read: Callable[[], Awaitable[Any]]) -> bytes:
        """Return the request that `read` brings, and count it until `done`.  Raises Refusal."""
        connection = self._connections.get(peer)
        if connection is None:
            connection = self._connections[peer] = _Connection(self._max_readers // SHARE, self._end)
        connection.calls += 1
        try:
            if connection.places:
                connection.places -= 1
            else:
                await connection.enter()
            try:
                raw = await self._read(connection, read)
            finally:
                connection.leave()
            if type(raw) is not bytes:
                raise Refusal(wire.BAD_REQUEST, "the call ended without a request")
            self._budget.take(peer, len(raw))
        except BaseException:
            self._left(peer, connection)
            raise
        return raw

    def done(self, peer: Peer, size: int) -> None:
        """Forget a request of `size` bytes that `read` returned."""
        self._budget.give_back(peer, size)
        self._left(peer, self._connections[peer])

    def _left(self, peer: Peer, connection: _Connection) -> None:
        connection.calls -= 1
        if not connection.calls:
            del self._connections[peer]

    async def _read(self, connection: _Connection, read: Callable[[], Awaitable[Any]]) -> Any:
        if self._readers >= self._max_readers:
            self._end_oldest()
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        connection.reading[task] = loop.time()
        self._readers += 1
        if self._timer is None:
            self._timer = loop.call_later(limits.FRAME_DEADLINE_S, self._look)
        try:
            return await read()
        except asyncio.CancelledError:
            if task in self._ended and not task.uncancel():
                raise Refusal(wire.TOO_MANY_REQUESTS, "the request did not arrive in time, call again") from None
            raise
        finally:
            if connection.reading.pop(task, None) is not None:
                self._readers -= 1
            self._ended.discard(task)

    def _look(self) -> None:
        """End what is read for too long, and look again when the oldest of the others will be.

        One timer serves all requests: a timer for each would cost as much as the rest of its reading.
        """
        now = asyncio.get_running_loop().time()
        oldest = now
        for connection in self._connections.values():
            for task, since in connection.reading.items():
                if now - since >= limits.FRAME_DEADLINE_S:
                    self._end(task)
                else:
                    oldest = min(oldest, since)
                    break
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(oldest + limits.FRAME_DEADLINE_S, self._look) if self._readers else None

    def _end_oldest(self) -> None:
        busiest = max(self._connections.values(), key=lambda one: len(one.reading))
        task = next(iter(busiest.reading))
        del busiest.reading[task]
        self._readers -= 1
        self._end(task)

    def _end(self, task: "asyncio.Task[Any]") -> None:
        if task not in self._ended:  # it may be on its way out
            self._ended.add(task)
            task.cancel()
