"""Borders of controller mode: what controllers decided, who carries it out, and what a master tells them.

`ReplicasManager` talks to controllers.  `RoleSwitch` makes the broker what they decided.  `SyncState` is the master's
view of its slaves.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Tenure:
    """Decision about a group: its master since an epoch, and the replicas that are in sync."""

    master_epoch: int
    master_id: int
    master_address: str
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


class RoleSwitch(Protocol):
    """The broker whose role changes while it runs.  Calls do not overlap."""

    def identify(self, broker_id: int) -> None:
        """Take the id that the controllers assigned, above 0; before the first of the calls below."""

    async def lead(self, tenure: Tenure) -> None:
        """Become the master, or go on as the master of a later epoch.

        Returns once the epoch's start is on the disk and sends are served.  Raises `StoreError`.
        """

    async def follow(self, tenure: Tenure) -> None:
        """Become a slave of `tenure`'s master, or follow that master from now on.  Raises `StoreError`."""

    async def rest(self) -> None:
        """Be nobody's slave and no master: the group has no master.  Reads go on."""


class SyncState(Protocol):
    """A master's slaves by broker id, as its own log and clock judge them; without the master itself."""

    def in_sync(self) -> frozenset[int]:
        """Return the slaves that have what the log held when they joined, and do not lag."""

    def holding(self, offset: int) -> frozenset[int]:
        """Return the slaves that have the log up to `offset`."""

    def require(self, acks: int) -> None:
        """Wait for so many replicas at least, with the master, whatever the keys say; 0: all that may be elected."""

    def count_only(self, broker_ids: frozenset[int], may_lead: frozenset[int] | None = None) -> None:
        """Let only the slaves `broker_ids` count for acknowledgements; `may_lead` are those that may be elected.

        While a change is not decided, `broker_ids` are the members of both sets, the one before and the one after, and
        `may_lead` those of either: with allAckInSyncStateSet a message must be on all that may be elected.  None: the
        set is decided, so both are the same.
        """
