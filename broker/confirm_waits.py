"""Answers that wait until what they answer for is safe: one entry per batch, one timer for all.

Source: RocketMQ 5.3.3, `CommitLog.handleDiskFlush`, `GroupCommitService` (syncFlushTimeout).
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from sprocket.common.clock import Clock
from sprocket.common.errors import StoreError


class Timer(Protocol):
    """What `CallLater` returns."""

    def cancel(self) -> None: ...


# `loop.call_later`: seconds, callback.
CallLater = Callable[[float, Callable[[], None]], Timer]
# (error, timed out): None and False when it is safe, an error when it will never be, True when time is up.
Answer = Callable[[StoreError | None, bool], None]


class Confirmable(Protocol):
    """The part of `MessageStore` that says when something is safe."""

    @property
    def confirm_offset(self) -> int: ...

    def when_confirmed(self, physical_offset: int, callback: Callable[[StoreError | None], None], /) -> None: ...


class ConfirmWaits:
    """Holds answers back until the store confirms an offset, at most `timeout_ms`.

    `answer(error, timed_out)` is called exactly once for each wait.
    """

    def __init__(self, store: Confirmable, clock: Clock, call_later: CallLater) -> None:
        self._store = store
        self._clock = clock
        self._call_later = call_later
        self._waits: deque[_Wait] = deque()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return sum(wait.answer is not None for wait in self._waits)

    def wait(self, end_offset: int, timeout_ms: int, answer: Answer) -> None:
        """Call `answer` when the log is confirmed up to `end_offset`, or cannot be, or time is up."""
        wait = _Wait(answer, self._clock.monotonic() + timeout_ms / 1000)
        while self._waits and self._waits[0].answer is None:
            self._waits.popleft()
        self._store.when_confirmed(end_offset, wait.finish)
        if wait.answer is not None:
            self._waits.append(wait)
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._waits:
            delay = max(0.0, self._waits[0].deadline - self._clock.monotonic())
            self._timer = self._call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        waits = self._waits
        # All wait equally long, so the first is the first to time out.
        while waits and (waits[0].answer is None or waits[0].deadline <= now):
            waits.popleft().finish(None, True)
        self._set_timer()

    def close(self) -> None:
        """Stop the timer; what waits is answered by the store's shutdown."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Wait:
    __slots__ = ("answer", "deadline")

    def __init__(self, answer: Answer, deadline: float) -> None:
        self.answer: Answer | None = answer
        self.deadline = deadline

    def finish(self, error: StoreError | None, timed_out: bool = False) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            answer(error, timed_out)
