"""Destination of messages that a broker itself sends: delayed, timed, and popped but unacknowledged messages.

A master stores them in its own log.  A slave that acts for its master must not, because its log is a copy.  It sends
them to another master of the cluster (`broker.failover.escape_bridge`).  The sender does not know which of the two
happens.  Source: RocketMQ 5.3.3, `EscapeBridge.putMessage`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from sprocket.common.errors import RequestError
from store.record.record import Appended, PendingMessage


class Outstanding(Protocol):
    """A delivery that has not ended."""

    def cancel(self) -> object:
        """Cancel the delivery: `done` will not be called.  Some of the messages may have arrived."""


class Delivery(Protocol):
    """A destination that accepts all of some messages or, as far as the caller can tell, none."""

    def deliver(self, messages: Sequence[PendingMessage], done: Callable[[], None]) -> Outstanding | None:
        """Store `messages`, then call `done`: before this returns (None), or later (the outstanding delivery).

        Raises what `MessageStore.append` raises; then `done` is not called.
        """

    def refusals(self, messages: Sequence[PendingMessage]) -> Mapping[int, str]:
        """Return why some of `messages` are over a limit, by index.  Nothing is delivered."""

    @property
    def is_own_log(self) -> bool:
        """Whether `deliver` appends to the broker's own log at once, and to the queues that the messages name."""


class Appending(Protocol):
    """The part of a store that appends messages."""

    def append(self, messages: Sequence[PendingMessage]) -> list[Appended]: ...

    def refusals(self, messages: Sequence[PendingMessage]) -> Mapping[int, str]: ...


class OwnLog:
    """A `Delivery` into the broker's own log, at once."""

    is_own_log: Final = True

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
    """Deliver `messages` except those that exceed a limit, which may have been lowered since they were accepted.

    Call `dropped` with each of the exceptions and the reason.  Raises `StoreError` if no message is accepted now: then
    nothing is stored and nothing was dropped.
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
    # All in one call: if it is refused now, nothing is stored, and all messages are delivered again later.
    return delivery.deliver(fitting, stored)
