"""When what is held is to be answered at the latest: one timer for all of it."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar

from broker.send.confirm_waits import CallLater, Timer
from sprocket.common.clock import Clock
from sprocket.remoting.command import Request

# So many deadlines of what was answered are kept before it is worth going through all of them.
_MOST_STALE: Final = 1024


class Held(Protocol):
    """A request that waits; None once it is answered or dropped.  `deadline` may be moved nearer."""

    request: Request[Any] | None
    deadline: float  # of the monotonic clock, seconds


H = TypeVar("H", bound=Held)


class Deadlines(Generic[H]):
    """Calls `expire` once for each that is still held at its deadline.

    Deadlines less than `tick_s` away wait that long: many share a turn of the timer.
    """

    def __init__(self, clock: Clock, call_later: CallLater, expire: Callable[[H], None], tick_s: float) -> None:
        self._clock = clock
        self._call_later = call_later
        self._expire = expire
        self._tick_s = tick_s
        # Also of what is answered; of a deadline that was moved both are there.
        self._entries: list[tuple[float, int, H]] = []
        self._numbers = count()
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def expect(self, held: H, held_count: int) -> None:
        """`held` has a new deadline; `held_count` are held in all."""
        deadline = held.deadline
        heapq.heappush(self._entries, (deadline, next(self._numbers), held))
        if len(self._entries) > 2 * held_count + _MOST_STALE:
            self._forget_answered()
        if self._timer is not None:
            if deadline >= self._timer_at:
                return
            self._timer.cancel()
        self._set_timer(deadline)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_answered(self) -> None:
        """A consumer at the end of its queue has one held and answered for each message: keep none of them."""
        self._entries = [entry for entry in self._entries if entry[2].request and entry[0] == entry[2].deadline]
        heapq.heapify(self._entries)

    def _set_timer(self, at: float) -> None:
        self._timer_at = at
        self._timer = self._call_later(max(self._tick_s, at - self._clock.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        entries = self._entries
        due = []
        while entries and (entries[0][0] <= now or entries[0][2].request is None):
            held = heapq.heappop(entries)[2]
            if held.request is not None:
                due.append(held)
        if entries:
            self._set_timer(entries[0][0])
        for held in due:
            self._expire(held)
