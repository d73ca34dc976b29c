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


class Range(NamedTuple):
    """One pull of `length` messages from `offset` on; with `waits` it is held until there is a message."""

    offset: int
    length: int
    waits: bool = False

    @property
    def end(self) -> int:
        """The offset after the range."""
        return self.offset + self.length


class ReadAhead:
    """Pulls from `offset` on; at most about `ahead_bytes` of messages are held or under way."""

    def __init__(self, offset: int, ahead_bytes: Callable[[], int]) -> None:
        self.ready: deque[ReceivedMessage] = deque()  # in order, without a gap
        self.next_offset = offset  # after `ready`
        self._ahead_bytes = ahead_bytes
        self._held_bytes = 0
        self._message_bytes = 0.0  # of a message, about
        self._asked = offset  # the first offset that no pull has asked for
        self._end = offset  # of the queue, as far as it is known
        self._stride = MAX_MESSAGES
        self._whole = 0
        self._under_way = 0
        self._gaps: deque[Range] = deque()
        self._early: dict[int, tuple[int, Sequence[ReceivedMessage]]] = {}  # by offset: where it ends, messages

    def next_pull(self) -> Range | None:
        """Return a pull to send now; None while enough is under way or held."""
        if self._gaps:
            found = self._gaps.popleft()
        elif self._held_bytes + self._under_way * self._stride * self._message_bytes > self._ahead_bytes():
            return None
        elif self._asked < self._end and self._under_way < MAX_PULLS:
            found = Range(self._asked, min(self._stride, self._end - self._asked))
            self._asked = found.end
        elif self._under_way == 0:
            found = Range(self._asked, MAX_MESSAGES, waits=True)
        else:
            return None
        self._under_way += 1
        return found

    def take(self, pull: Range, messages: Sequence[ReceivedMessage], next_offset: int, end: int) -> None:
        """Take the answer to a pull: the broker goes on at `next_offset`, and its queue ends at `end`."""
        self._under_way -= 1
        self._end = max(self._end, end)
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
            self._held_bytes -= self.ready.popleft().size_bytes

    def _learn(self, pull: Range, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        count = next_offset - pull.offset
        if messages:
            size_bytes = sum(message.size_bytes for message in messages)
            self._held_bytes += size_bytes
            self._message_bytes = size_bytes / len(messages)
        if pull.waits or count < pull.length:
            if next_offset < self._end:
                self._stride, self._whole = max(1, count), 0
        elif pull.length == self._stride:
            self._whole += 1
            if self._whole >= _WHOLE:
                self._stride, self._whole = min(2 * self._stride, MAX_MESSAGES), 0
