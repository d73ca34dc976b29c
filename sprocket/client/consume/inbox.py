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
        self._failure: Exception | None = None

    def fail(self, failure: Exception | None) -> None:
        """Raise `failure` in all who wait for a message, also later, until this is called with None."""
        self._failure = failure
        if failure is not None:
            for reader in self._readers:
                if not reader.done():
                    reader.set_exception(failure)
            self._readers.clear()

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages of one queue, in order."""
        if self.is_closed:
            return
        self._ready.extend(messages)
        for _ in range(min(len(messages), len(self._readers))):
            self._wake_reader()

    def close(self) -> None:
        """Give nothing more; all readers are told."""
        self.is_closed = True
        self._ready.clear()
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def _wake_reader(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return

    def next_ready(self) -> ReceivedMessage | None:
        """The next message if one is here: what it costs is paid for every message, so there is no list and no task."""
        ready = self._ready
        while ready:
            message = ready.popleft()
            source = message.source
            if source is not None and not source.is_dropped:
                source.take(message, self._monotonic())
                return message
        return None

    async def take(self, most: int = 1) -> list[ReceivedMessage]:
        """Up to `most` messages that lie one behind the other in one queue; none once it is closed.

        Raises what `fail` was given when no message is here.
        """
        ready = self._ready
        while not self.is_closed:
            first = self.next_ready()
            if first is None:
                if self._failure is not None:
                    raise self._failure
                await self._wait()
                continue
            taken = [first]
            source = first.source
            while len(taken) < most and ready and ready[0].source is source and source is not None:
                message = ready.popleft()
                source.take(message, first.taken_at)
                taken.append(message)
            return taken
        return []

    async def _wait(self) -> None:
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            await reader
        except asyncio.CancelledError:
            # The wake-up was for a message that another reader must now take.
            if reader.done() and not reader.cancelled():
                reader.exception()  # of `fail`: others have it too
                self._wake_reader()
            elif reader in self._readers:
                self._readers.remove(reader)
            raise
