"""Limit of the bytes that a link sends in a second."""

from collections.abc import Awaitable, Callable

from sprocket.common.clock import Clock


class RateLimit:
    """A bucket of one second's bytes; 0 bytes in a second mean no limit.

    A request is admitted when the requests before it are paid for, so one that is larger than the bucket passes, too.
    """

    def __init__(self, rate_bytes: int, clock: Clock, pause: Callable[[float], Awaitable[None]]) -> None:
        self._rate_bytes = rate_bytes
        self._clock = clock
        self._pause = pause
        self._paid_s = 0.0  # when everything that was admitted is paid for

    async def admit(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may be sent."""
        if not self._rate_bytes:
            return
        now_s = self._clock.monotonic()
        begin_s = max(self._paid_s, now_s - 1.0)
        self._paid_s = begin_s + size_bytes / self._rate_bytes
        if begin_s > now_s:
            await self._pause(begin_s - now_s)
