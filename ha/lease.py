"""Lease of a master: the time in which controllers elect no other one, so that it may acknowledge.

A heartbeat that a controller's leader granted extends the lease from the moment the heartbeat left, not from its
answer.  The controller counts from the moment the heartbeat arrived, so it waits longer than the master acknowledges.
The clock must go on while the machine sleeps.
RocketMQ has no lease: two masters may acknowledge at a time.  See docs/decisions/043-leases.md.
"""

from typing import Final

_NEVER: Final = float("-inf")


class Lease:
    """Lease of one broker, in seconds of a clock that never steps back.

    A lease without a term does not expire: it is that of a broker without controllers.
    """

    __slots__ = ("_until_s",)

    def __init__(self, until_s: float = _NEVER) -> None:
        self._until_s = until_s

    @property
    def until_s(self) -> float:
        """When it ends."""
        return self._until_s

    def granted(self, sent_s: float, term_s: float) -> None:
        """Extend the lease: a heartbeat that left at `sent_s` was granted for `term_s`."""
        self._until_s = max(self._until_s, sent_s + term_s)

    def given_up(self) -> None:
        """End the lease at once: this broker is no master any more."""
        self._until_s = _NEVER

    def is_held(self, now_s: float) -> bool:
        """Return whether the master may acknowledge now."""
        return now_s < self._until_s
