"""All schedules of a broker in the order in which they are due.  Pure: the caller has the clock, and sends."""

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Final

from broker.schedules.fire_times import BadRule
from broker.schedules.timing import Timing
from sprocket.remoting.bodies.schedule import ScheduleEntry

# Pauses between attempts to send a message that was refused: the first, which doubles, and the longest.
_FIRST_RETRY_MS: Final = 1_000
_MAX_RETRY_MS: Final = 60_000


class Planned:
    """One schedule on the agenda; `timing` is None while it is paused, or if its time zone is gone."""

    __slots__ = ("entry", "fired_total", "is_gone", "last_error", "pause_ms", "refused_total", "retry_ms", "timing")

    def __init__(self, entry: ScheduleEntry) -> None:
        self.entry = entry
        self.timing: Timing | None = None
        self.is_gone = False  # it is no longer on the agenda
        self.pause_ms = self.retry_ms = 0  # before the next attempt, and when that is
        self.fired_total = self.refused_total = 0
        self.last_error = ""

    def carry_on(self, before: "Planned") -> None:
        """Take over what was counted for the same schedule before it was changed."""
        self.fired_total, self.refused_total = before.fired_total, before.refused_total
        self.last_error = before.last_error


class Agenda:
    """A heap of schedules by due time, and all of them by key.

    `fired_ms` returns the last fire time of a schedule that is in the log, by key; None without one.
    """

    def __init__(self, fired_ms: Callable[[str], int | None]) -> None:
        self._fired_ms = fired_ms
        self.by_key: dict[str, Planned] = {}
        self._heap: list[tuple[int, int, Planned]] = []
        self._numbers = count()
        self._new: deque[tuple[str, Planned]] = deque()  # without their next time yet

    def update(self, entries: Mapping[str, ScheduleEntry]) -> None:
        """Follow a change of the table.  Unchanged schedules stay as they are."""
        self.change({**{key: None for key in self.by_key if key not in entries}, **entries})

    def change(self, changes: Mapping[str, ScheduleEntry | None]) -> None:
        """Follow changes of some schedules; None removes one."""
        for key, entry in changes.items():
            before = self.by_key.get(key)
            if before is not None and before.entry is entry:
                continue
            if before is not None:
                before.is_gone = True
            if entry is None:
                self.by_key.pop(key, None)
                continue
            planned = self.by_key[key] = Planned(entry)
            if before is not None and before.entry.id == entry.id:
                planned.carry_on(before)
            if not entry.rests:
                self._new.append((key, planned))

    def settle(self, max_schedules: int) -> None:
        """Compute the next time of some schedules that were added; call it until nothing is due at once."""
        for _ in range(min(max_schedules, len(self._new))):
            key, planned = self._new.popleft()
            if planned.is_gone:
                continue
            try:
                planned.timing = Timing(planned.entry, max(planned.entry.since_millis, self._fired_ms(key) or 0))
            except BadRule as error:  # the master that took it knew its time zone
                planned.last_error = str(error)
            self._push(planned)

    def _push(self, planned: Planned) -> None:
        due_ms = None if planned.timing is None else planned.timing.due_ms
        if due_ms is not None:
            heappush(self._heap, (max(due_ms, planned.retry_ms), next(self._numbers), planned))

    def clear(self) -> None:
        """Forget all schedules."""
        self.update({})
        self._heap.clear()
        self._new.clear()

    def wait_ms(self, now_ms: int) -> int | None:
        """Return the time until the next schedule is due, 0 or more; None if none will be."""
        if self._new:
            return 0
        return max(self._heap[0][0] - now_ms, 0) if self._heap else None

    def pop_due(self, now_ms: int) -> Planned | None:
        """Take a schedule whose message is to be sent now; end with `fired` or `refused`.  None: nothing is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            planned = heappop(self._heap)[2]
            if planned.is_gone or planned.timing is None:
                continue
            if planned.timing.is_due(now_ms):
                return planned
            self._push(planned)
        return None

    def fired(self, planned: Planned) -> None:
        """Put a schedule whose message is in the log back, for its next fire time."""
        assert planned.timing is not None
        planned.timing.fired()
        planned.fired_total += 1
        planned.pause_ms = planned.retry_ms = 0
        planned.last_error = ""
        self._push(planned)

    def refused(self, planned: Planned, reason: str, now_ms: int) -> None:
        """Put a schedule whose message was refused back, for another attempt."""
        planned.refused_total += 1
        planned.last_error = reason
        planned.pause_ms = min(planned.pause_ms * 2, _MAX_RETRY_MS) or _FIRST_RETRY_MS
        planned.retry_ms = now_ms + planned.pause_ms
        self._push(planned)
