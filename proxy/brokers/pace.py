"""Sends that leave together if many are under way.

A send that leaves alone costs a write to the broker, a read of its answer, and a write of gRPC's core.  Sends that wait
a moment for others share all three, and the broker stores them as one batch.  docs/proxy.md has the figures.
"""

import asyncio
from typing import Final

# Up to here nothing waits: a client that sends one message after the other would only lose time.
_FEW: Final = 2
# If fewer come together, the wait did not pay.
_WORTHWHILE: Final = 8


class Pace:
    """Pace of sends, as a context in which a send is under way.  Lives in one event loop.  Sends keep their order.

    A send waits for `moment` first, up to `moment_s`; after a wait that did not pay, sends leave at once for `pause_s`.
    """

    def __init__(self, moment_s: float = 0.003, pause_s: float = 0.02) -> None:
        self._moment_s = moment_s
        self._pause_s = pause_s
        self._under_way = 0
        self._waiting: list[asyncio.Future[None]] = []
        # From the end of a moment until the sends that waited have left: later ones must not overtake them.
        self._are_leaving = False
        self._hurries_until_s = 0.0

    def moment(self) -> "asyncio.Future[None] | None":
        """Return what a send has to wait for; None if it may leave at once."""
        if self._waiting or self._are_leaving:
            return self._moment()
        if self._under_way >= _FEW:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._hurries_until_s:
                loop.call_later(self._moment_s, self._end, loop)
                return self._moment()
        return None

    def __enter__(self) -> None:
        self._under_way += 1

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1

    def _moment(self) -> "asyncio.Future[None]":
        """Return what ends with the moment that has begun."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) < _WORTHWHILE:
            self._hurries_until_s = loop.time() + self._pause_s
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._are_leaving = True
        # Runs after the sends that waited, which were woken before.
        loop.call_soon(self._left, loop)

    def _left(self, loop: asyncio.AbstractEventLoop) -> None:
        self._are_leaving = False
        if self._waiting:
            loop.call_later(self._moment_s, self._end, loop)
