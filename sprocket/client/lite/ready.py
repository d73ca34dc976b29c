"""Messages of lite topics that wait for the application, each lite topic in its order; pure.

A lite topic gives its next message when the one before is settled.  If that one is rejected, the broker delivers it
again together with all that follow, so those that wait are given up.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from sprocket.client.pop.popped_message import PoppedMessage

# Broker and lite topic: after a change of the parent's queues two brokers may have messages of one lite topic.
_Key = tuple[str, str]


def _key(popped: PoppedMessage) -> _Key:
    return popped.handle.broker_name, popped.lite_topic


class LiteReady:
    """Messages by lite topic; its length is the number of lite topics that can give one."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, deque[PoppedMessage]] = {}
        self._in_work: dict[_Key, PoppedMessage] = {}
        self._turns: dict[_Key, None] = {}  # lite topics that can give a message, the longest waiting first

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Iterate over the messages that wait."""
        for waiting in self._waiting.values():
            yield from waiting

    def extend(self, batch: Iterable[PoppedMessage]) -> list[PoppedMessage]:
        """Take what a pop gave; return messages that a broker has given up, because it delivers them again.

        A broker delivers no more of a lite topic until all that it delivered before are acknowledged or visible.
        """
        came: dict[_Key, deque[PoppedMessage]] = {}
        for popped in batch:
            came.setdefault(_key(popped), deque()).append(popped)
        given_up: list[PoppedMessage] = []
        for key, messages in came.items():
            before = self._in_work.pop(key, None)
            given_up += self._waiting.get(key, ()) if before is None else [before, *self._waiting.get(key, ())]
            self._waiting[key] = messages
            self._turns[key] = None
        return given_up

    def popleft(self) -> PoppedMessage:
        """Return the next message; there is one."""
        key = next(iter(self._turns))
        del self._turns[key]
        waiting = self._waiting[key]
        popped = self._in_work[key] = waiting.popleft()
        if not waiting:
            del self._waiting[key]
        return popped

    def settled(self, popped: PoppedMessage) -> None:
        """Let the lite topic of a message give its next one."""
        key = _key(popped)
        if self._in_work.get(key) is popped:
            del self._in_work[key]
            if key in self._waiting:
                self._turns[key] = None

    def rejected(self, popped: PoppedMessage) -> list[PoppedMessage]:
        """Give up the messages that follow a rejected one; return them."""
        key = _key(popped)
        if self._in_work.get(key) is not popped:
            return []
        del self._in_work[key]
        return list(self._waiting.pop(key, ()))

    def left(self, lite_topic: str) -> list[PoppedMessage]:
        """Give up the messages of a lite topic that is not subscribed any more; return them."""
        given_up: list[PoppedMessage] = []
        for key in [key for key in self._waiting if key[1] == lite_topic]:
            given_up += self._waiting.pop(key)
            self._turns.pop(key, None)
        return given_up

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._in_work.clear()
        self._turns.clear()
