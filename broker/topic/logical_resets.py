"""Resets of groups in logical queues of static topics that wait for the group's next pull.

The broker that leads the logical queue keeps them, in memory, as `ConsumerOffsets` keeps those of physical queues.
"""

from typing import Final, NamedTuple

from sprocket.common.clock import Clock

# A live consumer pulls each of its queues more often.  Pop consumers never pull: their resets must not wait for good.
_WAIT_S: Final = 600.0


class LogicalPlace(NamedTuple):
    """A group in a logical queue."""

    group: str
    topic: str
    queue_id: int


class LogicalResets:
    """The logical offset to which each group moves with its next pull.  Lives in the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[LogicalPlace, tuple[int, float]] = {}  # offset, and until when it waits

    def put(self, place: LogicalPlace, offset: int) -> None:
        """Move the group to `offset` with its next pull of the queue."""
        now = self._clock.monotonic()
        self._waiting = {place: each for place, each in self._waiting.items() if each[1] > now}
        self._waiting[place] = (offset, now + _WAIT_S)

    def get(self, place: LogicalPlace) -> int | None:
        """Return the offset of a reset that waits; None if there is none."""
        offset, until = self._waiting.get(place, (None, 0.0))
        return offset if until > self._clock.monotonic() else None

    def take(self, place: LogicalPlace) -> int | None:
        """Return the offset, and end the reset; None if there is none."""
        offset = self.get(place)
        self._waiting.pop(place, None)
        return offset
