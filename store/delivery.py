"""Where messages go that a broker itself sends on: those that were delayed, timed, popped and not acknowledged.

A master stores them in its own log.  A slave that acts for its master must not: its log is a copy, so they go to
another master of the cluster (`broker.failover.escape_bridge`).  Who sends them on does not know which of the two it
is. Source: RocketMQ 5.3.3, `EscapeBridge.putMessage`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sprocket.common.errors import RequestError
from store.record.record import Appended, PendingMessage


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

    def refusals(self, messages: Sequence[PendingMessage]) -> Mapping[int, str]:
        """Return why some of `messages` are over a limit, by index.  Nothing is delivered."""
        ...


class Appending(Protocol):
    """The part of a store that takes messages."""

    def append(self, messages: Sequence[PendingMessage]) -> list[Appended]: ...

    def refusals(self, messages: Sequence[PendingMessage]) -> Mapping[int, str]: ...


class OwnLog:
    """Stores in the own log, at once."""

    def __init__(self, store: Appending) -> None:
        self._store = store

    def deliver(self, messages: Sequence[PendingMessage], done: Callable[[], None]) -> None:
        self._store.append(messages)
        done()

    def refusals(self, messages: Sequence[PendingMessage]) -> Mapping[int, str]:
        return self._store.refusals(messages)


def deliver_fitting(
    delivery: Delivery,
    messages: Sequence[PendingMessage],
    done: Callable[[], None],
    dropped: Callable[[PendingMessage, str], None],
) -> Outstanding | None:
    """Deliver all of `messages` but those over a limit, which has changed; call `dropped` with each of them and why.

    Raises `StoreError` if none is taken now: then nothing is stored, and nothing was dropped.
    """
    if not messages:
        done()
        return None
    try:
        return delivery.deliver(messages, done)
    except RequestError:
        refused = delivery.refusals(messages)
        if not refused:
            raise

    def stored() -> None:
        for index, reason in refused.items():
            dropped(messages[index], reason)
        done()

    fitting = [message for index, message in enumerate(messages) if index not in refused]
    if not fitting:
        stored()
        return None
    # In one piece, like all of them: if it is refused now, nothing is stored, and all are delivered again later.
    return delivery.deliver(fitting, stored)
