"""Pulls of one queue that are under way at the same time.

A broker gives few messages in a pull: 32, or 8 from its disk.  One pull after the other would carry that many in a
round trip.  So while the queue is known to have more, pulls of as many messages as the broker gave go out together,
each with a range of offsets of its own.  What a broker leaves of a range is asked for again.  At the end of the queue
one pull waits at the broker.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sprocket.client.message import ReceivedMessage

# Messages that a pull asks for, at most.  Source: RocketMQ, `DefaultMQPushConsumerImpl.checkConfig`.
MAX_MESSAGES: Final = 1024
# Pulls of a queue that are under way.
MAX_PULLS: Final = 128
# After so many ranges that came whole, the broker may give more than it did.
_WHOLE: Final = 64
# Taken for the size of a message before the first one.
_FIRST_MESSAGE_BYTES: Final = 4096


class Range(NamedTuple):
    """One pull of `length` messages from `offset` on; with `waits` it is held until there is a message."""

    offset: int
    length: int
    waits: bool = False

    @property
    def end(self) -> int:
        """The offset after the range."""
        return self.offset + self.length


class AheadBudget:
    """Bytes that the readers of a link may hold or have asked for: of all about `total_bytes`, of each `reader_bytes`.

    One half is shared evenly, so no reader waits for another one: one that has no more than its share may ask for as
    much again.  The other half is for those that ask first.  A broker gives at least one message, whatever its size.
    """

    def __init__(self, total_bytes: int, reader_bytes: int, readers: Callable[[], int]) -> None:
        self.taken_bytes = 0.0
        self._half_bytes = total_bytes // 2
        self._reader_bytes = reader_bytes
        self._readers = readers

    @property
    def share_bytes(self) -> int:
        """Bytes that each reader may always have."""
        return min(self._half_bytes // (2 * max(1, self._readers())), self._reader_bytes)

    def admits(self, own_bytes: float) -> bool:
        """Return whether a reader that has `own_bytes` may ask for more."""
        if self.taken_bytes <= self._half_bytes:
            return own_bytes <= self._reader_bytes
        return own_bytes <= self.share_bytes


class ReadAhead:
    """Pulls from `offset` on, as far as `budget` admits them."""

    def __init__(self, offset: int, budget: AheadBudget) -> None:
        self.ready: deque[ReceivedMessage] = deque()  # in order, without a gap
        self.next_offset = offset  # after `ready`
        self.end = offset  # of the queue, as far as it is known
        self._budget = budget
        self._own_bytes = 0.0  # held or asked for
        self._message_bytes: float = _FIRST_MESSAGE_BYTES  # of a message, about
        self._asked = offset  # the first offset that no pull has asked for
        self._stride = MAX_MESSAGES
        self._whole = 0
        self._under_way = 0
        self._reserved: dict[int, float] = {}  # bytes of the pulls under way, by offset
        self._gaps: deque[Range] = deque()
        self._early: dict[int, tuple[int, Sequence[ReceivedMessage]]] = {}  # by offset: where it ends, messages

    def next_pull(self) -> Range | None:
        """Return a pull to send now; None while enough is under way or held."""
        if self._gaps:
            found = self._gaps.popleft()
        elif not self._budget.admits(self._own_bytes):
            return None
        elif self._asked < self.end and self._under_way < MAX_PULLS:
            found = Range(self._asked, min(self._stride, self._most(), self.end - self._asked))
            self._asked = found.end
        elif self._under_way == 0:
            found = Range(self._asked, self._most(), waits=True)
        else:
            return None
        self._under_way += 1
        if not found.waits:
            self._reserved[found.offset] = found.length * self._message_bytes
            self._take_bytes(self._reserved[found.offset])
        return found

    def _most(self) -> int:
        """Return how many messages a pull may ask for."""
        return max(1, min(MAX_MESSAGES, int(self._budget.share_bytes / self._message_bytes)))

    def _take_bytes(self, size_bytes: float) -> None:
        self._own_bytes += size_bytes
        self._budget.taken_bytes += size_bytes

    def close(self) -> None:
        """Return what it has to the budget; no answer may come any more."""
        self._take_bytes(-self._own_bytes)

    def take(self, pull: Range, messages: Sequence[ReceivedMessage], next_offset: int, end: int) -> None:
        """Take the answer to a pull: the broker goes on at `next_offset`, and its queue ends at `end`."""
        self._under_way -= 1
        self.end = max(self.end, end)
        self._take_bytes(-self._reserved.pop(pull.offset, 0.0))
        messages = [message for message in messages if pull.offset <= message.queue_offset < pull.end]
        next_offset = max(pull.offset, min(next_offset, pull.end))
        self._learn(pull, messages, next_offset)
        if pull.waits:
            self._asked = next_offset
        elif next_offset < pull.end:
            self._gaps.append(Range(next_offset, pull.end - next_offset))
        if next_offset > pull.offset:
            self._early[pull.offset] = next_offset, messages
        while self.next_offset in self._early:
            self.next_offset, ordered = self._early.pop(self.next_offset)
            self.ready.extend(ordered)

    def drop(self, count: int) -> None:
        """Forget the first messages of `ready`."""
        for _ in range(count):
            self._take_bytes(-self.ready.popleft().size_bytes)

    def _learn(self, pull: Range, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        count = next_offset - pull.offset
        if messages:
            size_bytes = sum(message.size_bytes for message in messages)
            self._take_bytes(size_bytes)
            self._message_bytes = max(1.0, size_bytes / len(messages))
        if pull.waits or count < pull.length:
            if next_offset < self.end:
                self._stride, self._whole = max(1, count), 0
        elif pull.length == self._stride:
            self._whole += 1
            if self._whole >= _WHOLE:
                self._stride, self._whole = min(2 * self._stride, MAX_MESSAGES), 0
