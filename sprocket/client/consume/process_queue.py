"""One queue of a consumer: pulled messages, acknowledged messages, and the offset to commit.

Source: RocketMQ 5.3.3, `ProcessQueue`, `DefaultMQPushConsumerImpl.pullMessage` (flow control).  Pure.
"""

from collections import deque
from collections.abc import Sequence

from sprocket.client.message import ReceivedMessage
from sprocket.remoting.bodies.client import MessageQueue


class ProcessQueue:
    """Messages between pull and acknowledgement.

    `next_offset` is where the next pull begins.  `commit_offset` is the smallest offset that is not yet
    acknowledged; everything before it was acknowledged or did not match the subscription.
    """

    __slots__ = (
        "_acknowledged",
        "_pending",
        "count",
        "is_confirmed",
        "is_dropped",
        "last_pull_at",
        "last_taken_at",
        "next_offset",
        "queue",
        "size_bytes",
        "taken",
    )

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.count = 0
        self.size_bytes = 0
        self.is_dropped = False
        self.is_confirmed = False  # a broker has answered a pull at `next_offset`
        self.last_pull_at: float | None = None  # both monotonic s
        self.last_taken_at: float | None = None
        self.taken: dict[int, ReceivedMessage] = {}  # messages of the application by offset, in the order of taking
        self._pending: deque[int] = deque()
        self._acknowledged: set[int] = set()

    def drop(self) -> None:
        """Deliver and commit nothing more: the queue was reset, or another member has it."""
        self.is_dropped = True

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

    def is_pending(self, message: ReceivedMessage) -> bool:
        """Return whether `message` was put and not yet acknowledged."""
        pending, offset = self._pending, message.queue_offset
        return bool(pending) and pending[0] <= offset and offset not in self._acknowledged

    def taken_before(self, limit: float) -> list[ReceivedMessage]:
        """Return the messages that the application took before `limit` (monotonic s) and has not acknowledged."""
        expired = []
        for message in self.taken.values():
            if message.taken_at >= limit:
                break
            expired.append(message)
        return expired

    def acknowledge(self, message: ReceivedMessage) -> bool:
        """Count `message` as consumed; False if it was counted before, or if this consumer lost the queue."""
        pending = self._pending
        offset = message.queue_offset
        if self.is_dropped or not pending or offset < pending[0] or offset in self._acknowledged:
            return False
        self.count -= 1
        self.size_bytes -= message.size_bytes
        self.taken.pop(offset, None)
        if offset != pending[0]:
            self._acknowledged.add(offset)
            return True
        pending.popleft()
        while pending and pending[0] in self._acknowledged:
            self._acknowledged.remove(pending.popleft())
        return True

    @property
    def commit_offset(self) -> int | None:
        """The offset to commit; None as long as no broker has confirmed where this queue begins."""
        if not self.is_confirmed:
            return None
        return self._pending[0] if self._pending else self.next_offset

    @property
    def extent(self) -> tuple[int, int]:
        """First and last offset that are not acknowledged; (0, 0) when there are none."""
        return (self._pending[0], self._pending[-1]) if self._pending else (0, 0)

    @property
    def span(self) -> int:
        """Distance between the first and the last message that are not acknowledged."""
        return self._pending[-1] - self._pending[0] if self._pending else 0
