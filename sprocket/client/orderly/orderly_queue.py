"""One queue that is consumed in order: its messages one after the other, and only while its lock is held.

Source: RocketMQ 5.3.3, `ConsumeMessageOrderlyService.ConsumeRequest`, `processConsumeResult`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.consume.process_queue import ProcessQueue
from sprocket.client.message import ReceivedMessage

# What the pause before a message is tried again is kept within.
_SUSPEND_MIN_S = 0.01
_SUSPEND_MAX_S = 30.0


class Slots:
    """How many queues may be handled at once; none before `open`."""

    def __init__(self) -> None:
        self._most = 0
        self._taken = 0
        self._waiting: dict[Wakeup, None] = {}

    def open(self, most: int) -> None:
        self._most = most
        for due in self._waiting:
            due.set()
        self._waiting.clear()

    def close(self) -> None:
        """Give none from now on."""
        self._most = 0

    def take(self, due: Wakeup) -> bool:
        """Whether there was one; if not, `due` is set when it is worth trying again."""
        if self._taken < self._most:
            self._taken += 1
            return True
        self._waiting[due] = None
        return False

    def give(self) -> None:
        self._taken -= 1
        self.wake_next()

    def wake_next(self) -> None:
        """Wake one that waits: also called by one that was woken and needs no slot any more."""
        if self._taken < self._most and self._waiting:
            due = next(iter(self._waiting))
            del self._waiting[due]
            due.set()


class OrderlyQueue:
    """Messages of one process queue on their way to the handler.

    `handle` gets up to `most()` messages in their order; it returns those that are to be tried again and after how
    long: before any other of the queue.  `may_consume` is asked before each time.
    """

    def __init__(
        self,
        process_queue: ProcessQueue,
        handle: Callable[[list[ReceivedMessage]], Awaitable[tuple[list[ReceivedMessage], float]]],
        most: Callable[[], int],
        may_consume: Callable[[], bool],
        lost: Callable[[], None],
        slots: Slots,
    ) -> None:
        self.process_queue = process_queue
        self._handle = handle
        self._most = most
        self._may_consume = may_consume
        self._lost = lost
        self._slots = slots
        self._messages: deque[ReceivedMessage] = deque()
        self._due = Wakeup()
        self._is_ending = False
        self.task: asyncio.Task[None]

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages that were pulled, in order."""
        self._messages.extend(messages)
        self._due.set()

    def end(self) -> None:
        """Begin no further message; `task` ends once the one that is being handled is through."""
        self._is_ending = True
        self._due.set()

    @property
    def _is_over(self) -> bool:
        return self._is_ending or self.process_queue.is_dropped

    async def run(self, previous: "asyncio.Task[None] | None") -> None:
        """Consume until `end` is called or the lock is lost; begins when `previous` of the same queue is through."""
        if previous is not None:
            await asyncio.wait([previous])
        while not self._is_over:
            if not self._messages or not self._slots.take(self._due):
                await self._due.wait()
                continue
            try:
                if not self._may_consume():
                    self._lost()
                    break
                taken = list(islice(self._messages, self._most()))
                again, suspend_s = await self._handle(taken)
            finally:
                self._slots.give()
            for _ in taken:
                self._messages.popleft()
            if again:
                self._messages.extendleft(reversed(again))
                if not self._is_over:
                    await self._due_after(min(max(suspend_s, _SUSPEND_MIN_S), _SUSPEND_MAX_S))
        self._slots.wake_next()

    async def _due_after(self, seconds: float) -> None:
        """Pause; what is put meanwhile does not end the pause, `end` does."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._is_over and (left_s := until - loop.time()) > 0:
            await self._due.wait(left_s)
