"""A stand-in for `loop.call_later` that runs on a clock moved by hand."""

from collections.abc import Callable

from tests.clock import ManualClock


class LoopTimer:
    """One call set by `ManualTimers`."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualTimers:
    """Timers of a `ManualClock`; `max_pending` is the largest number that were set at a time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._timers: list[LoopTimer] = []
        self.max_pending = 0

    @property
    def pending(self) -> list[LoopTimer]:
        return [timer for timer in self._timers if not timer.is_cancelled]

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> LoopTimer:
        timer = LoopTimer(self._clock.monotonic() + delay_s, callback)
        self._timers = [*self.pending, timer]
        self.max_pending = max(self.max_pending, len(self._timers))
        return timer

    def turn(self) -> None:
        """Call what is due now, as one turn of a loop does: not what that sets."""
        for timer in [timer for timer in self.pending if timer.at <= self._clock.monotonic()]:
            timer.is_cancelled = True
            timer.callback()

    def advance(self, seconds: float) -> None:
        """Let time pass, and call what falls due on the way, each at its time."""
        end = self._clock.monotonic() + seconds
        while True:
            due = [timer for timer in self.pending if timer.at <= end]
            if not due:
                break
            timer = min(due, key=lambda one: one.at)
            timer.is_cancelled = True
            self._clock.advance(max(0.0, timer.at - self._clock.monotonic()))
            timer.callback()
        self._clock.advance(end - self._clock.monotonic())
