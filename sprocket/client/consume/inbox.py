"""Pulled messages that no reader has taken yet, and waiting readers."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence, Set

from sprocket.client.message import ReceivedMessage
from sprocket.remoting.bodies.client import MessageQueue


class Inbox:
    """Messages of all queues of a consumer in order of arrival; any number of readers."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        on_taken: Sequence[Callable[[Sequence[ReceivedMessage]], None]] = (),
        has_room: Callable[[], bool] | None = None,
    ) -> None:
        """`on_taken` are called with messages that the application gets.

        Without `has_room` returning True nobody gets a message; `wake` is called when that changes.
        """
        self._has_room = has_room
        self._on_hold: frozenset[MessageQueue] = frozenset()
        self._held: list[ReceivedMessage] = []  # messages of queues on hold, in order
        self._monotonic = monotonic
        self._ready: deque[ReceivedMessage] = deque()
        self._readers: deque[asyncio.Future[None]] = deque()
        self.is_closed = False
        self._failure: Exception | None = None
        self._on_taken = tuple(on_taken)

    def fail(self, failure: Exception | None) -> None:
        """Raise `failure` in all current and later waiting readers, until this is called with None."""
        self._failure = failure
        if failure is not None:
            for reader in self._readers:
                if not reader.done():
                    reader.set_exception(failure)
            self._readers.clear()

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add messages of one queue, in order."""
        if self.is_closed:
            return
        if self._on_hold and messages and messages[0].queue in self._on_hold:
            self._held.extend(messages)
            return
        self._ready.extend(messages)
        for _ in range(min(len(messages), len(self._readers))):
            self._wake_reader()

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Return messages that were taken but not handled; they are the next ones."""
        if not self.is_closed:
            self._ready.extendleft(reversed(messages))
            self.wake()

    def hold(self, queues: Set[MessageQueue]) -> None:
        """Deliver no message of `queues`, and those of all others."""
        self._on_hold = frozenset(queues)
        everything = [*self._held, *self._ready]
        self._held = [message for message in everything if message.queue in self._on_hold]
        self._ready = deque(message for message in everything if message.queue not in self._on_hold)
        self.wake()

    def wake(self) -> None:
        """Let waiting readers look again."""
        for _ in range(min(len(self._ready), len(self._readers))):
            self._wake_reader()

    def close(self) -> None:
        """Deliver nothing more and wake all readers."""
        self.is_closed = True
        self._ready.clear()
        self._held.clear()
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    @property
    def is_awaited(self) -> bool:
        """Whether a reader waits for a message."""
        return any(not reader.done() for reader in self._readers)

    def _wake_reader(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return

    def next_ready(self) -> ReceivedMessage | None:
        """Return the next message if there is one.  It runs for every message, so it makes no list and no task."""
        if self._has_room is not None and not self._has_room():
            return None
        ready = self._ready
        while ready:
            message = ready.popleft()
            source = message.source
            if source is None:
                continue
            if source.is_dropped:
                source.skip(message)
                continue
            source.take(message, self._monotonic())
            for listener in self._on_taken:
                listener([message])
            return message
        return None

    async def take(self, max_messages: int = 1) -> list[ReceivedMessage]:
        """Wait for up to `max_messages` consecutive messages of one queue; return none after `close`.

        If there is no message, raises the error that `fail` got.
        """
        while not self.is_closed:
            first = self.next_ready()
            if first is None:
                if self._failure is not None:
                    raise self._failure
                await self._wait()
                continue
            taken = [first]
            ready = self._ready
            source = first.source
            while len(taken) < max_messages and ready and ready[0].source is source and source is not None:
                if self._has_room is not None and not self._has_room():
                    break
                message = ready.popleft()
                source.take(message, first.taken_at)
                for listener in self._on_taken:
                    listener([message])
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
                reader.exception()  # retrieve the error of `fail`, which other readers have too
                self._wake_reader()
            elif reader in self._readers:
                self._readers.remove(reader)
            raise
