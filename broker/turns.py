"""Work in turns of the event loop: in steps, or when it is due."""

import asyncio
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias


class Timer(Protocol):
    """What `CallLater` returns."""

    def cancel(self) -> None: ...


# `loop.call_later`: seconds, callback.
CallLater: TypeAlias = Callable[[float, Callable[[], None]], Timer]


def run_in_turns(steps: Iterator[object], at_once: int, call_later: CallLater) -> None:
    """Run `at_once` of `steps` now, and as many in each of the next turns of the loop."""
    if sum(1 for _ in islice(steps, at_once)) == at_once:
        call_later(0.0, partial(run_in_turns, steps, at_once, call_later))


def loop_time() -> float:
    """Return the time of the running event loop, s."""
    return asyncio.get_running_loop().time()


def loop_later(seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    """Call `callback` later in the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, callback)


class NextTurn:
    """One timer for work that is due at several times: it calls `turn` at the earliest of them.

    `now_s` is the clock of `call_later`.  It sleeps at most `max_s`, so that a step of the wall clock is noticed.
    """

    def __init__(
        self, turn: Callable[[], None], now_s: Callable[[], float], call_later: CallLater, max_s: float = math.inf
    ) -> None:
        self._turn = turn
        self._now_s = now_s
        self._call_later = call_later
        self._max_s = max_s
        self._timer: Timer | None = None
        self._at_s = 0.0

    def wake_in(self, seconds: float) -> None:
        """Call `turn` in this time, unless it is called earlier."""
        seconds = min(max(seconds, 0.0), self._max_s)
        at_s = self._now_s() + seconds
        if self._timer is not None:
            if self._at_s <= at_s:
                return
            self._timer.cancel()
        self._at_s, self._timer = at_s, self._call_later(seconds, self._begin)

    def cancel(self) -> None:
        """Do not call `turn`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        self._turn()
