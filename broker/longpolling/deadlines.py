"""Deadlines of held requests: one timer for all of them."""

import heapq
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar

from broker.longpolling.confirm_waits import CallLater, Timer
from sprocket.common.clock import Clock
from sprocket.remoting.command import Request

# Max deadlines of answered requests to keep before all entries are searched for them.
_MAX_STALE: Final = 1024
# Time of the loop for one call of the timer; what is due beyond that waits for the next call.
_SLICE_S: Final = 0.001


class Held(Protocol):
    """Held request.  `request` is None once it is answered or dropped.  `deadline` may become earlier."""

    request: Request[Any] | None
    deadline: float  # of the monotonic clock, seconds


H = TypeVar("H", bound=Held)


class Deadlines(Generic[H]):
    """Table of deadlines; calls `expire` once for each request that is still held at its deadline.

    The timer waits at least `tick_s`, so that many deadlines share one call.
    """

    def __init__(self, clock: Clock, call_later: CallLater, expire: Callable[[H], None], tick_s: float) -> None:
        self._clock = clock
        self._call_later = call_later
        self._expire = expire
        self._tick_s = tick_s
        # Includes answered requests, and both deadlines of a request whose deadline was moved.
        self._entries: list[tuple[float, int, H]] = []
        self._numbers = count()
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def expect(self, held: H, held_count: int) -> None:
        """Add the new deadline of `held`; `held_count` is the number of all held requests."""
        deadline = held.deadline
        heapq.heappush(self._entries, (deadline, next(self._numbers), held))
        if len(self._entries) > 2 * held_count + _MAX_STALE:
            self._forget_answered()
        if self._timer is not None:
            if deadline >= self._timer_at:
                return
            self._timer.cancel()
        self._set_timer(deadline, self._tick_s)

    def expire_soon(self, held: Iterable[H]) -> None:
        """Let requests expire now, in their order, for a slice of time in each turn of the loop."""
        now = self._clock.monotonic()
        for one in held:
            one.deadline = now
            heapq.heappush(self._entries, (now, next(self._numbers), one))
        self.close()
        self._set_timer(now, 0.0)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_answered(self) -> None:
        """Remove entries of answered requests: a consumer at the end of its queue leaves one for each message."""
        self._entries = [entry for entry in self._entries if entry[2].request and entry[0] == entry[2].deadline]
        heapq.heapify(self._entries)

    def _set_timer(self, at: float, min_delay_s: float) -> None:
        self._timer_at = at
        self._timer = self._call_later(max(min_delay_s, at - self._clock.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        try:
            while (held := self._due(now)) is not None:
                self._expire(held)
                if self._clock.monotonic() >= now + _SLICE_S:
                    break
        finally:
            self.close()  # an answer may have set the timer for a later deadline
            if self._entries:
                at = self._entries[0][0]
                self._set_timer(at, 0.0 if at <= now else self._tick_s)

    def _due(self, now: float) -> H | None:
        """Take the next request whose deadline was at `now` or before; None if there is none."""
        entries = self._entries
        while entries and (entries[0][0] <= now or entries[0][2].request is None):
            held = heapq.heappop(entries)[2]
            if held.request is not None:
                return held
        return None
