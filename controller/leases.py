"""Leases of masters, as the leader of the controllers counts them: when may another master be elected?

A lease counts from the arrival of the heartbeat that asked for it.  The master counts from the moment the heartbeat
left, so the master stops first.  A controller that begins to lead does not know what the leader before it granted: it
waits for one whole lease.  Times are of a monotonic clock, in ms.  See docs/decisions/043-leases.md.
"""

from dataclasses import dataclass
from typing import Final

from controller.state.group import Group

# The clocks of two machines run apart: the controller's lease is longer by this part of it, and by this time.
_DRIFT_PARTS: Final = 50
_ROUNDING_MS: Final = 5


@dataclass(slots=True)
class _Lease:
    epoch: int
    until_ms: int
    given_up: bool = False


class Leases:
    """Leases by broker group.  Any controller notes who gave one up; only the leader grants."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._term = -1
        self._since_ms = 0

    @property
    def names(self) -> list[str]:
        """Groups whose masters ask for leases."""
        return list(self._leases)

    def watch(self, name: str) -> None:
        """Add a group to which another controller granted leases."""
        self._leases.setdefault(name, _Lease(-1, 0))

    def lead(self, term: int, now_ms: int) -> None:
        """Note that this controller leads in `term`.  The first call for a term begins the wait."""
        if term != self._term:
            self._term, self._since_ms = term, now_ms

    def granted(self, name: str, epoch: int, arrived_ms: int, lease_ms: int) -> None:
        """Note a lease of the master of `epoch`, whose heartbeat arrived at `arrived_ms`."""
        held = self._leases.get(name)
        until_ms = arrived_ms + _with_drift(lease_ms)
        if held is not None:
            until_ms = max(until_ms, held.until_ms)
        self._leases[name] = _Lease(epoch, until_ms)

    def give_up(self, name: str, epoch: int) -> None:
        """Note that the master of `epoch` acknowledges nothing any more.  It gets no lease again."""
        held = self._leases.get(name)
        if held is None or held.epoch <= epoch:
            self._leases[name] = _Lease(epoch, 0, given_up=True)

    def is_given_up(self, name: str, epoch: int) -> bool:
        """Return whether the master of `epoch` gave its lease up."""
        held = self._leases.get(name)
        return held is not None and held.epoch == epoch and held.given_up

    def forget(self, name: str) -> None:
        """Forget a group that the controllers do not know any more."""
        self._leases.pop(name, None)

    def wait_ms(self, group: Group, now_ms: int) -> int:
        """Return how long no other master may be elected; 0 if one may be now."""
        if group.required_acks is None or self.is_given_up(group.name, group.master_epoch):
            return 0
        held = self._leases.get(group.name)
        granted_until_ms = 0 if held is None else held.until_ms
        others_until_ms = self._since_ms + _with_drift(group.lease_ms)
        return max(0, granted_until_ms - now_ms, others_until_ms - now_ms)


def _with_drift(lease_ms: int) -> int:
    return lease_ms + lease_ms // _DRIFT_PARTS + _ROUNDING_MS
