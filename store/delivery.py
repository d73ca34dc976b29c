"""Where messages go that a broker itself sends on: those that were delayed, timed, popped and not acknowledged.

A master stores them in its own log.  A slave that acts for its master must not: its log is a copy, so they go to
another master of the cluster (`broker.escape_bridge`).  Who sends them on does not know which of the two it is.
Source: RocketMQ 5.3.3, `EscapeBridge.putMessage`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from sprocket.common.errors import RequestError
from store.record import Appended, PendingMessage


class Outstanding(Protocol):
    """Messages on their way."""

    def cancel(self) -> object:
        """Give up: `done` is not called any more.  Some of the messages may have arrived."""
        ...


class Delivery(Protocol):
    """Takes messages, all or none as far as its caller can tell."""

    def deliver(self, messages: Sequence[PendingMessage], done: Callable[[], None]) -> Outstanding | None:
        """Store `messages` and call `done`, before this returns, or later; then what is returned is outstanding.

        Raises what `MessageStore.append` raises; `done` is then not called.
        """
        ...


class Appending(Protocol):
    """The part of a store that takes messages."""

    def append(self, messages: Sequence[PendingMessage]) -> list[Appended]: ...


class OwnLog:
    """Stores in the own log, at once."""

    def __init__(self, store: Appending) -> None:
        self._store = store

    def deliver(self, messages: Sequence[PendingMessage], done: Callable[[], None]) -> None:
        self._store.append(messages)
        done()


def deliver_fitting(
    delivery: Delivery,
    messages: Sequence[PendingMessage],
    done: Callable[[], None],
    dropped: Callable[[PendingMessage, str], None],
) -> Outstanding | None:
    """Deliver all but those that are refused for ever, over a limit that has changed; `dropped` hears why.

    Raises `StoreError` if nothing is taken now.  None but the own log refuses, which is never outstanding.
    """
    if not messages:
        done()
        return None
    try:
        return delivery.deliver(messages, done)
    except RequestError as error:
        if len(messages) == 1:
            dropped(messages[0], error.remark)
        else:
            # Halves: all or none are taken.
            middle = len(messages) // 2
            deliver_fitting(delivery, messages[:middle], _nothing, dropped)
            deliver_fitting(delivery, messages[middle:], _nothing, dropped)
        done()
        return None


def _nothing() -> None:
    pass
