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
        """Return how many more messages it takes beyond those in the inbox; less than 0 if they are too many."""

    def takes(self) -> bool:
        """Return whether the application may get a message now."""


class Inbox:
    """Queues between two threads, one for each channel, with a descriptor that is readable while there may be news."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._items: dict[Receiver, deque[Delivery]] = {}
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        self._is_awake = False
        self.is_closed = False

    def fileno(self) -> int:
        """Return the descriptor for an event loop of the application."""
        return self._readable

    def waiting(self, receiver: Receiver) -> int:
        """Return how many messages wait for `receiver`."""
        return len(self._items.get(receiver, ()))

    def add(self, receiver: Receiver, deliveries: Sequence[Delivery]) -> None:
        """Add messages for `receiver`."""
        if deliveries:
            with self._lock:
                self._items.setdefault(receiver, deque()).extend(deliveries)
                self.wake()

    def put_back(self, receiver: Receiver, delivery: Delivery) -> None:
        """Add a message in front."""
        with self._lock:
            self._items.setdefault(receiver, deque()).appendleft(delivery)
            self.wake()

    def pop(self) -> "tuple[Receiver, Delivery] | None":
        """Return the oldest message of a channel that may get one; None without any."""
        with self._lock:
            for receiver, waiting in self._items.items():
                if waiting and receiver.takes():
                    # It is the last one the next time.
                    self._items[receiver] = self._items.pop(receiver)
                    return receiver, waiting.popleft()
        return None

    def surplus(self, receiver: Receiver, reader: QueueReader) -> list[Delivery]:
        """Remove the newest messages of `reader` for which `receiver` has no room, and return them."""
        found: list[Delivery] = []
        with self._lock:
            waiting = self._items.get(receiver, deque())
            while receiver.room() < 0 and waiting and waiting[-1].reader is reader:
                found.append(waiting.pop())
        return found

    def forget(self, reader: QueueReader) -> list[Delivery]:
        """Remove the messages of `reader`, and return them."""
        gone: list[Delivery] = []
        with self._lock:
            for receiver, waiting in list(self._items.items()):
                gone += [delivery for delivery in waiting if delivery.reader is reader]
                kept = deque(delivery for delivery in waiting if delivery.reader is not reader)
                if kept:
                    self._items[receiver] = kept
                else:
                    del self._items[receiver]
        return gone

    def wake(self) -> None:
        """Make the descriptor readable."""
        with self._lock:
            if not self._is_awake and not self.is_closed:
                with suppress(BlockingIOError):  # full, so it is readable already
                    os.write(self._writable, b"\0")
                self._is_awake = True

    def clear(self) -> None:
        """Make the descriptor unreadable until the next message."""
        with self._lock:
            self._is_awake = False
            # A forked child may have written, too.
            with suppress(BlockingIOError):
                while not self.is_closed and os.read(self._readable, 4096):
                    pass

    def wait(self, timeout_s: float | None) -> bool:
        """Return whether the descriptor got readable within `timeout_s`."""
        return bool(select.select([self._readable], [], [], timeout_s)[0])

    def close(self) -> None:
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                os.close(self._readable)
                os.close(self._writable)
