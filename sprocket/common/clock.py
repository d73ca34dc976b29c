"""Clocks.  Every reader of time takes a `Clock`, so that a test can control it."""

import time
from typing import Final, Protocol

_BOOT_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Two clocks: one that people read and one that only moves forward."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may step in either direction."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never steps back.  For timeouts and leases."""


class SystemClock:
    """The clocks of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The function itself, without a method around it: it is read twice per append.
    monotonic = staticmethod(time.monotonic)


def since_boot() -> float:
    """Return the seconds since the machine booted, with those in which it slept; never steps back.  For leases.

    A system without such a clock gives the one of `Clock.monotonic`, which may stand still while the machine sleeps.
    """
    return time.clock_gettime(_BOOT_CLOCK)
