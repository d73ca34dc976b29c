"""What was pulled and nobody has asked for yet, and those who wait for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from sprocket.client.message import ReceivedMessage


class Inbox:
    """Messages of all queues of a consumer, in the order in which they came; any number of readers."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ready: deque[ReceivedMessage] = deque()
        self._readers: deque[asyncio.Future[None]] = deque()
        self.is_closed = False

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages of one queue, in order."""
        self._ready.extend(messages)
        for _ in range(min(len(messages), len(self._readers))):
            self._wake_reader()

    def close(self) -> None:
        """Give nothing more; all readers are told."""
        self.is_closed = True
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def _wake_reader(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return

    async def take(self, most: int = 1) -> list[ReceivedMessage]:
        """Up to `most` messages that lie one behind the other in one queue; none once it is closed."""
        ready = self._ready
        while not self.is_closed:
            while ready:
                first = ready.popleft()
                source = first.source
                if source is None or source.is_dropped:
                    continue
                taken = [first]
                while len(taken) < most and ready and ready[0].source is source:
                    taken.append(ready.popleft())
                now = self._monotonic()
                for message in taken:
                    source.take(message, now)
                return taken
            await self._wait()
        return []

    async def _wait(self) -> None:
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            await reader
        except asyncio.CancelledError:
            # The wake-up was for a message that another reader must now take.
            if reader.done() and not reader.cancelled():
                self._wake_reader()
            raise
