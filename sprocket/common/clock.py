"""Clocks.  Every reader of time takes a `Clock`, so that a test can control it."""

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

    # The function itself, without a method around it: it is read twice per append.
    monotonic = staticmethod(time.monotonic)
