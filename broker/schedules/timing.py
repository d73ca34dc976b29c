"""What one schedule does next: the fire time, and when its message is sent.  Pure.

A fire time counts as missed when its message is more than a minute late: the broker was down, or its clock was set
forward, or the topic took no messages.  The catch-up policy says which missed times fire.  A clock that was set back
repeats nothing, because only times after the last one fire.
"""

from typing import Final

from broker.schedules.fire_times import jitter_of, rule_of
from sprocket.remoting.bodies.schedule import CatchUp, ScheduleEntry

LATE_MS: Final = 60_000


class Timing:
    """Timing of one schedule that is not paused; `fired_ms` is the last fire time that is done.

    `next_ms` is the next fire time, and `due_ms` the time to send its message; both are None if there is none.
    """

    def __init__(self, entry: ScheduleEntry, fired_ms: int) -> None:
        """Raises BadRule."""
        self._entry = entry
        self._rule = rule_of(entry)
        self._done_ms = fired_ms
        # Up to here fire times are sent however late they are.
        self._makes_up_to_ms = 0
        self.next_ms: int | None = None
        self.due_ms: int | None = None
        self._choose(self._rule.after(fired_ms))

    def _choose(self, fire_ms: int | None) -> None:
        self.next_ms = fire_ms
        if fire_ms is None:
            self.due_ms = None
        else:
            # With jitter, a later fire time may be due earlier: it waits.
            self.due_ms = max(fire_ms + jitter_of(self._entry, fire_ms), self.due_ms or 0)

    def fired(self) -> None:
        """Go on to the time after `next_ms`, whose message is in the log."""
        assert self.next_ms is not None
        self._done_ms = self.next_ms
        self._choose(self._rule.after(self._done_ms))

    def is_due(self, now_ms: int) -> bool:
        """Return whether the message of `next_ms` is to be sent now; first pass over missed times that do not fire."""
        if self.due_ms is None or self.next_ms is None or self.due_ms > now_ms:
            return False
        if now_ms - self.due_ms > LATE_MS and self.next_ms > self._makes_up_to_ms:
            self._pass_over(now_ms)
        return self.due_ms is not None and self.due_ms <= now_ms

    def _pass_over(self, now_ms: int) -> None:
        """Choose the first of the missed times that the policy makes up for, or the first that is not missed."""
        schedule = self._entry.schedule
        self.due_ms = None
        if schedule.catch_up is CatchUp.NONE:
            fire_ms = self._rule.after(max(self._done_ms, now_ms - LATE_MS - schedule.jitter_millis - 1))
            while fire_ms is not None and now_ms - fire_ms - jitter_of(self._entry, fire_ms) > LATE_MS:
                fire_ms = self._rule.after(fire_ms)
            self._choose(fire_ms)
            return
        count = 1 if schedule.catch_up is CatchUp.LAST else schedule.max_catch_up
        self._makes_up_to_ms = now_ms
        missed = self._rule.newest(self._done_ms, now_ms, count)
        self._choose(missed[0] if missed else self._rule.after(now_ms))
