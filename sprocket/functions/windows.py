"""Windows of event time."""

from dataclasses import dataclass
from typing import Final

from sprocket.client import arguments

# Event times are from -MAX_TIME_MS to this one, in ms since the epoch: a changelog has no larger ones.
MAX_TIME_MS: Final = 10**15 - 1


@dataclass(frozen=True)
class Window:
    """Event times from `start_ms` to before `end_ms`; it closes when the watermark reaches `closes_at_ms`."""

    start_ms: int
    end_ms: int
    closes_at_ms: int


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size that follow each other without gaps, from the epoch on.

    A window closes when an input has arrived whose time is `grace_ms` after its end, so inputs may be that late.
    """

    size_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.whole("size_ms", self.size_ms, 1)
        arguments.whole("grace_ms", self.grace_ms, 0)

    def at(self, time_ms: int) -> Window:
        """Return the window of an event time."""
        return self.starting_at(time_ms - time_ms % self.size_ms)

    def starting_at(self, start_ms: int) -> Window:
        """Return the window that begins at `start_ms`."""
        end_ms = start_ms + self.size_ms
        return Window(start_ms, end_ms, end_ms + self.grace_ms)
