"""Consumption of one queue in order: one message after the other, and only while its lock is held.

Source: RocketMQ 5.3.3, `ConsumeMessageOrderlyService.ConsumeRequest`, `processConsumeResult`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import islice
from typing import Any, Self

from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.process_queue import ProcessQueue

# Bounds of the pause before a retry.
_SUSPEND_MIN_S = 0.01
_SUSPEND_MAX_S = 30.0


class Slots:
    """Slots for queues that are handled at the same time; none before `open`."""

    def __init__(self) -> None:
        self._max_slots = 0
        self._taken = 0
        self._waiting: dict[Wakeup, None] = {}
        self._idle = Wakeup()

    def open(self, max_slots: int) -> None:
        self._max_slots = max_slots
        for due in self._waiting:
            due.set()
        self._waiting.clear()

    def close(self) -> None:
        """Give no more slots."""
        self._max_slots = 0

    def take(self, due: Wakeup) -> bool:
        """Take a slot and return True; if there is none, return False and set `due` when one may be free."""
        if self._taken < self._max_slots:
            self._taken += 1
            return True
        self._waiting[due] = None
        return False

    def give(self) -> None:
        self._taken -= 1
        if not self._taken:
            self._idle.set()
        self.wake_next()

    async def settled(self, limit_s: float) -> None:
        """Wait until all slots are free, for at most `limit_s`, after `close`."""
        self._idle = Wakeup()
        if self._taken:
            await self._idle.wait(limit_s)

    def wake_next(self) -> None:
        """Wake one waiting queue; a queue that was woken and needs no slot calls this too."""
        if self._taken < self._max_slots and self._waiting:
            due = next(iter(self._waiting))
            del self._waiting[due]
            due.set()


class OrderlyQueue:
    """Messages of one process queue on their way to the handler.

    `handle` gets up to `max_messages()` messages in order.  It returns those to retry before any other message of the
    queue, and the pause before the retry, s.  `may_consume` is asked before each call.
    """

    def __init__(
        self,
        process_queue: ProcessQueue,
        handle: Callable[[list[ReceivedMessage]], Awaitable[tuple[list[ReceivedMessage], float]]],
        max_messages: Callable[[], int],
        may_consume: Callable[[], bool],
        lost: Callable[[], None],
        slots: Slots,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """While `is_paused` returns True, no message is handled; `wake` is called after a change to False."""
        self._is_paused = is_paused
        self.process_queue = process_queue
        self._handle = handle
        self._max_messages = max_messages
        self._may_consume = may_consume
        self._lost = lost
        self._slots = slots
        self._messages: deque[ReceivedMessage] = deque()
        self._due = Wakeup()
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]], after: Self | None) -> None:
        """Start to consume, when `after` for the same queue has ended."""
        self._task = spawn(self._run(after))

    def runs_in(self, task: "asyncio.Task[Any] | None") -> bool:
        """Return whether `task` consumes this queue."""
        return task is not None and self._task is task

    async def ended(self) -> None:
        """Wait until the running handler has ended, after `end`."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add pulled messages, in order."""
        self._messages.extend(messages)
        self._due.set()

    def wake(self) -> None:
        """Look again whether the queue is paused."""
        self._due.set()

    def end(self) -> None:
        """Begin no further message."""
        self._is_ending = True
        self._due.set()

    @property
    def _is_over(self) -> bool:
        return self._is_ending or self.process_queue.is_dropped

    async def _run(self, after: Self | None) -> None:
        """Consume until `end` is called or the lock is lost."""
        if after is not None:
            await after.ended()
        while not self._is_over:
            if not self._messages or self._is_paused() or not self._slots.take(self._due):
                await self._due.wait()
                continue
            try:
                if not self._may_consume():
                    self._lost()
                    break
                taken = list(islice(self._messages, self._max_messages()))
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
        """Pause; `end` ends the pause, new messages do not."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._is_over and (left_s := until - loop.time()) > 0:
            await self._due.wait(left_s)
