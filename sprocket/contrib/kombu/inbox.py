"""Messages on their way from the loop of the connection to the thread of the application."""

import os
import select
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from sprocket.contrib.kombu.reader import Delivery, QueueReader


class Receiver(Protocol):
    """A channel, as the inbox sees it."""

    def room(self) -> int:
        """Return how many more messages it takes beyond those in the inbox."""


class Inbox:
    """Queue between two threads, with a file descriptor that is readable while there may be something new."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._items: deque[tuple[Receiver, Delivery]] = deque()
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        self.is_closed = False

    def fileno(self) -> int:
        """Return the descriptor for an event loop of the application."""
        return self._readable

    def waiting(self, receiver: Receiver) -> int:
        """Return how many messages wait for `receiver`."""
        with self._lock:
            return sum(each is receiver for each, _ in self._items)

    def add(self, receiver: Receiver, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Add what `receiver` has room for, and return the rest."""
        with self._lock:
            room = max(receiver.room(), 0)
            self._items.extend((receiver, delivery) for delivery in deliveries[:room])
        if deliveries[:room]:
            self.wake()
        return deliveries[room:]

    def put_back(self, receiver: Receiver, delivery: Delivery, *, is_new: bool = True) -> None:
        """Add a message in front; one that is not new waits for room and wakes nobody."""
        with self._lock:
            self._items.appendleft((receiver, delivery))
        if is_new:
            self.wake()

    def pop(self) -> "tuple[Receiver, Delivery] | None":
        """Return the oldest message, None without any."""
        with self._lock:
            return self._items.popleft() if self._items else None

    def forget(self, reader: QueueReader) -> list[Delivery]:
        """Remove the messages of `reader`, and return them."""
        with self._lock:
            gone = [delivery for _, delivery in self._items if delivery.reader is reader]
            self._items = deque(item for item in self._items if item[1].reader is not reader)
        return gone

    def wake(self) -> None:
        """Make the descriptor readable."""
        with suppress(OSError):  # full, so it is readable already, or closed
            os.write(self._writable, b"\0")

    def clear(self) -> None:
        """Make the descriptor unreadable until the next message."""
        with suppress(OSError):
            while os.read(self._readable, 4096):
                pass

    def wait(self, timeout_s: float | None) -> bool:
        """Return whether the descriptor got readable within `timeout_s`."""
        return bool(select.select([self._readable], [], [], timeout_s)[0])

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self._readable)
            os.close(self._writable)
