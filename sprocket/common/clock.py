"""The time seam: every reader of time takes a `Clock`, so that a test owns it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that people read and one that only moves forward."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may step in either direction."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never steps back.  For timeouts and leases."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Itself, not a method that calls it: it is read twice per append.
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that a test moves by hand; `advance` moves both readings."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._monotonic += seconds
        self._wall_ms += round(seconds * 1000)

    def step_wall(self, milliseconds: int) -> None:
        """Set the wall clock forward or back without time passing, as an operator or NTP does."""
        self._wall_ms += milliseconds
