"""Interruptible waiting: a flag with a timeout, so that loops of the client end at once, and a pause."""

import asyncio


class Wakeup:
    """Flag whose `set` ends the current wait, or else the next one."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for `set` and clear it.  Return False after `timeout_s` without it."""
        if not self._is_set:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            timer = None if timeout_s is None else loop.call_later(timeout_s, _end, waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
                if timer is not None:
                    timer.cancel()
        was_set, self._is_set = self._is_set, False
        return was_set


async def pause(seconds: float) -> None:
    """Sleep for `seconds`; return at once for zero or less."""
    if seconds > 0:
        await Wakeup().wait(seconds)


def _end(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
