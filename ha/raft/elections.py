"""When this member asks for votes, and for whom it would vote: pre-vote, by the clock that is given.

pysyncobj's own timer starts an election at once, with a higher term.  A member that was cut off would come back with a
term that deposes a healthy leader.  So that timer is off, and this one asks first (`AskVote`): only a member that a
majority would vote for stands.  A member that hears a leader would vote for nobody.
Source: Ongaro, "Consensus: Bridging Theory and Practice", 4.2.3 and 9.6.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Times in seconds.  A follower that hears nothing asks for votes after `min_timeout_s` to `max_timeout_s`."""

    heartbeat_s: float = 0.1
    min_timeout_s: float = 0.5
    max_timeout_s: float = 0.9
    # A leader that no majority answers for this time steps down.  Longer than a slow sync, so that it is not deposed
    # for one; nothing depends on it but how soon it says that it does not lead.
    step_down_s: float = 1.8
    # How often a member looks at its timers.
    tick_s: float = 0.025


class Elections:
    """The timer of one member, and the answers to its question.  `random` returns a number from 0 to 1."""

    def __init__(self, timing: Timing, majority: int, now: float, random: Callable[[], float]) -> None:
        self._timing = timing
        self._majority = majority
        self._random = random
        self._deadline = 0.0
        self._heard_at: float | None = None
        self._asked_term = 0
        self._granted: set[str] = set()
        self.postpone(now)

    def postpone(self, now: float) -> None:
        """Begin the timeout again, with another random length."""
        timing = self._timing
        self._deadline = now + timing.min_timeout_s + (timing.max_timeout_s - timing.min_timeout_s) * self._random()
        self._asked_term = 0

    def heard_leader(self, now: float) -> None:
        """Note a message of the leader of the current term."""
        self._heard_at = now
        self.postpone(now)

    def forget_leader(self) -> None:
        """Note that the leader leads no more."""
        self._heard_at = None

    def lost_leader(self, now: float) -> None:
        """Note that the leader's connection ended: ask soon, those who still hear it will refuse."""
        self._heard_at = None
        timing = self._timing
        soon = now + timing.heartbeat_s + (timing.max_timeout_s - timing.min_timeout_s) * self._random()
        self._deadline = min(self._deadline, soon)

    def hears_leader(self, now: float) -> bool:
        """Return whether a leader was heard within the shortest timeout."""
        return self._heard_at is not None and now - self._heard_at < self._timing.min_timeout_s

    def knows_leader(self, now: float) -> bool:
        """Return whether a leader was heard within the longest timeout: then this member has not begun to ask."""
        return self._heard_at is not None and now - self._heard_at < self._timing.max_timeout_s

    def is_due(self, now: float) -> bool:
        """Return whether to ask for votes now."""
        return now >= self._deadline

    def ask(self, now: float, term: int) -> bool:
        """Begin to ask for votes in `term`.  Return whether this member's own is enough."""
        self.postpone(now)
        self._asked_term = term
        self._granted = set()
        return self._majority <= 1

    def answered(self, member_id: str, term: int, is_granted: bool) -> bool:
        """Note an answer.  Return whether to stand for election now, once."""
        if not is_granted or term != self._asked_term:
            return False
        self._granted.add(member_id)
        if len(self._granted) + 1 < self._majority:
            return False
        self._asked_term = 0
        return True
