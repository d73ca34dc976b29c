"""One queue of a consumer: pulled messages, acknowledged messages, and the offset to commit.

Source: RocketMQ 5.3.3, `ProcessQueue`, `DefaultMQPushConsumerImpl.pullMessage` (flow control).  Pure.
"""

from collections import deque
from collections.abc import Sequence

from sprocket.client.message import ReceivedMessage
from sprocket.client.settlement import Settlement
from sprocket.remoting.bodies.client import MessageQueue


class ProcessQueue:
    """Messages between pull and acknowledgement.

    `next_offset` is where the next pull begins.  `commit_offset` is the smallest offset that is not yet
    acknowledged; everything before it was acknowledged or did not match the subscription.
    """

    __slots__ = (
        "_acknowledged",
        "_extended",
        "_pending",
        "consumer",
        "count",
        "is_confirmed",
        "is_dropped",
        "is_waiting",
        "last_pull_at",
        "last_taken_at",
        "next_offset",
        "queue",
        "size_bytes",
        "taken",
    )

    def __init__(
        self, queue: MessageQueue, next_offset: int, consumer: Settlement | None = None, *, is_confirmed: bool = False
    ) -> None:
        """`consumer` acknowledges and rejects the messages.  `is_confirmed`: `next_offset` comes from a broker."""
        self.queue = queue
        self.consumer = consumer
        self.next_offset = next_offset
        self.count = 0
        self.size_bytes = 0
        self.is_dropped = False
        self.is_waiting = False  # its pull waits for room
        self.is_confirmed = is_confirmed
        self.last_pull_at: float | None = None  # both monotonic s
        self.last_taken_at: float | None = None
        self.taken: dict[int, ReceivedMessage] = {}  # messages of the application by offset, in the order of taking
        self._pending: deque[int] = deque()
        self._acknowledged: set[int] = set()
        self._extended: dict[int, float] = {}  # offset: moment that counts in place of `taken_at`

    def drop(self) -> None:
        """Deliver and commit nothing more: the queue was reset, or another member has it."""
        self.is_dropped = True

    def waits(self, is_waiting: bool) -> None:
        """Record whether the queue's pull waits for room."""
        self.is_waiting = is_waiting

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Add the messages of a pull, in order; the next pull begins at `next_offset`."""
        pending = self._pending
        for message in messages:
            message.source = self
            pending.append(message.queue_offset)
            self.size_bytes += message.size_bytes
        self.count += len(messages)
        self.next_offset = next_offset
        self.is_confirmed = True

    def take(self, message: ReceivedMessage, now: float) -> None:
        """Record that the application got `message` at `now`, monotonic s."""
        message.taken_at = self.last_taken_at = now
        self.taken[message.queue_offset] = message

    def skip(self, message: ReceivedMessage) -> None:
        """Do nothing: all messages of a dropped queue are left to its next owner."""

    def is_pending(self, message: ReceivedMessage) -> bool:
        """Return whether `message` was put and not yet acknowledged."""
        pending, offset = self._pending, message.queue_offset
        return bool(pending) and pending[0] <= offset and offset not in self._acknowledged

    def taken_before(self, limit: float) -> list[ReceivedMessage]:
        """Return the messages that the application took before `limit` (monotonic s) and has not acknowledged."""
        expired = []
        for offset, message in self.taken.items():
            if message.taken_at >= limit:
                break
            if self._extended.get(offset, limit - 1) < limit:
                expired.append(message)
        return expired

    def extend(self, message: ReceivedMessage, counts_from: float) -> None:
        """Treat `message` as if it were taken at `counts_from` (monotonic s), which may be in the future."""
        if self.is_pending(message):
            self._extended[message.queue_offset] = counts_from

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Count `message` as consumed; False if it was counted before, or if this consumer lost the queue."""
        pending, acknowledged = self._pending, self._acknowledged
        offset = message.queue_offset
        if self.is_dropped or not pending or offset < pending[0] or offset in acknowledged:
            return False
        self.count -= 1
        self.size_bytes -= message.size_bytes
        self.taken.pop(offset, None)
        if self._extended:
            self._extended.pop(offset, None)
        if offset != pending[0]:
            acknowledged.add(offset)
            return True
        pending.popleft()
        if acknowledged:
            while pending and pending[0] in acknowledged:
                acknowledged.remove(pending.popleft())
        return True

    @property
    def position(self) -> int:
        """The offset of the next message that the application gets."""
        for offset in self._pending:
            if offset not in self.taken and offset not in self._acknowledged:
                return offset
        return self.next_offset

    @property
    def commit_offset(self) -> int | None:
        """The offset to commit; None as long as no broker has confirmed where this queue begins."""
        if not self.is_confirmed:
            return None
        return self.first_unacknowledged

    @property
    def first_unacknowledged(self) -> int:
        """The smallest offset that is not yet acknowledged, whether or not a broker has confirmed the queue's begin."""
        return self._pending[0] if self._pending else self.next_offset

    @property
    def extent(self) -> tuple[int, int]:
        """First and last offset that are not acknowledged; (0, 0) when there are none."""
        return (self._pending[0], self._pending[-1]) if self._pending else (0, 0)

    @property
    def span(self) -> int:
        """Distance between the first and the last message that are not acknowledged."""
        return self._pending[-1] - self._pending[0] if self._pending else 0
