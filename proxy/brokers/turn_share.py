"""Share of each turn of the event loop for work that becomes ready all at once.

Messages may come for hundreds of receives in one turn: 256 answers of 32 messages held all other calls for 100 ms.
"""

import asyncio
from collections import deque


class TurnShare:
    """Share of about `max_bytes` in a turn; what is beyond it waits for later turns, in order."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left_bytes = max_bytes
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._is_due = False

    async def take(self, size: int) -> None:
        """Return in a turn that has room left for work of `size` bytes; the last one of a turn may have more."""
        loop = asyncio.get_running_loop()
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin)
        if self._left_bytes > 0 and not self._waiting:
            self._left_bytes -= size
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append((waiter, size))
        await waiter

    def _begin(self) -> None:
        """Begin a turn."""
        self._left_bytes = self._max_bytes
        while self._waiting and self._left_bytes > 0:
            waiter, size = self._waiting.popleft()
            if not waiter.done():  # its call may have ended
                self._left_bytes -= size
                waiter.set_result(None)
        self._is_due = self._left_bytes < self._max_bytes
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._begin)
