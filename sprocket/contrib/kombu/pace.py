"""How fast the application settles messages."""

from collections.abc import Callable
from typing import Final

_WINDOW_S: Final = 0.01
# A slower application does not feel a pop for every few messages; and what it reads ahead would wait for long.
_LEAST: Final = 4


class Pace:
    """Counts events in windows of 10 ms."""

    __slots__ = ("_count", "_last", "_monotonic", "_window")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns s."""
        self._monotonic = monotonic
        self._window, self._count, self._last = 0, 0, 0

    def add(self) -> None:
        """Count one event."""
        self._turn()
        self._count += 1

    def recent(self) -> int:
        """Return how many events a window had lately; 0 if they were few."""
        self._turn()
        found = max(self._last, self._count)
        return found if found >= _LEAST else 0

    def _turn(self) -> None:
        window = int(self._monotonic() / _WINDOW_S)
        if window != self._window:
            self._last = self._count if window == self._window + 1 else 0
            self._window, self._count = window, 0
