"""Limit on the time of each write of a stream: a client that does not read must not hold its messages."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from proxy.server.protocol import NotTaken, Stream


class Answer(Protocol):
    """Answer of a streaming method, in parts."""

    async def __call__(self, part: Any) -> None:
        """Write one part."""

    def check_room(self) -> None:
        """See `Stream`."""

    def hold(self, size: int, not_taken: NotTaken | None = None) -> None:
        """See `Stream`."""


class WriteLimit:
    """Answer of one call; a write that takes longer than `limit_s` ends `scope`, which raises TimeoutError.

    One timer serves all writes of a call: a timer for each would cost more than most writes.
    """

    def __init__(
        self,
        scope: asyncio.Timeout,
        write: Callable[[Any], Awaitable[None]],
        limit_s: float,
        stream: Stream,
    ) -> None:
        self.check_room, self.hold = stream.check_room, stream.hold
        self._scope = scope
        self._write = write
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._began_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, part: Any) -> None:
        """Write one part."""
        self._began_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._look)
        await self._write(part)
        self._began_s = None

    def _look(self) -> None:
        self._timer = None
        if self._began_s is None:
            return
        left_s = self._began_s + self._limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._scope.reschedule(self._loop.time())

    def close(self) -> None:
        """Stop the timer, at the end of the call."""
        if self._timer is not None:
            self._timer.cancel()
