"""Broker group as the controllers know it.

Source: RocketMQ 5.3.3, `BrokerReplicaInfo`, `SyncStateInfo`.  RocketMQ keeps the two in separate tables; a group is
always in both, so here it is one record.
"""

from collections.abc import Container, Iterable
from typing import Final

import msgspec

# `MixAll.FIRST_BROKER_CONTROLLER_ID`
FIRST_BROKER_ID = 1
# `required_acks` of a master that acknowledges a message when the whole sync-state set has it.
ALL_IN_SYNC: Final = 0


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """Member of a group.  `check_code` proves to whom the id was assigned: ``address;milliseconds``."""

    broker_id: int
    address: str
    check_code: str


class Group(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Broker group.  Never changed: a command makes a new one.

    `replicas` and `sync_state_set` are sorted by broker id, so that equal groups have equal bytes.  Both epochs grow by
    1 with each change.

    A master that asks for leases says in how many replicas of the sync-state set, with itself, an acknowledged message
    is: `required_acks`, or ALL_IN_SYNC.  None: a master without leases, like RocketMQ's, or one that has not led yet.
    No lease of the current epoch is longer than `lease_ms`.
    """

    cluster: str
    name: str
    next_broker_id: int = FIRST_BROKER_ID
    replicas: tuple[Replica, ...] = ()
    master_id: int | None = None
    master_epoch: int = 0
    sync_state_set: tuple[int, ...] = ()
    sync_state_set_epoch: int = 0
    # Missing in snapshots of versions without leases.
    required_acks: int | None = None
    lease_ms: int = 0
    # Replicas in sync that an operator had forgotten, since the master last told who is in sync.
    forgotten_in_sync: int = 0

    def replica(self, broker_id: int | None) -> Replica | None:
        """Return the member with this id."""
        return next((one for one in self.replicas if one.broker_id == broker_id), None)

    def address_of(self, broker_id: int | None) -> str | None:
        """Return the address of the member with this id."""
        found = self.replica(broker_id)
        return None if found is None else found.address

    @property
    def answers_needed(self) -> int:
        """Replicas in sync that must show their logs, so that every acknowledged message is in one of them.

        n - k + 1 of n replicas in sync, if a message is acknowledged once k have it.  With k = 1 one answer suffices:
        such a master does not promise that a message outlives it.
        """
        if self.required_acks is None or self.required_acks in (ALL_IN_SYNC, 1):
            return 1
        there = len(self.sync_state_set)
        return max(1, min(there, there + self.forgotten_in_sync - self.required_acks + 1))

    def ghosts(self, live: Container[int]) -> tuple[int, ...]:
        """Return the ids that brokers had before they lost their disks, and got another id at the same address.

        A member of the sync-state set is none, because it may have what was acknowledged.
        """
        at_home = [one for one in self.replicas if one.check_code.split(";")[0] == one.address]
        newest = {one.address: one.broker_id for one in at_home if one.broker_id in live}
        return tuple(
            one.broker_id
            for one in at_home
            if one.broker_id not in live
            and one.broker_id not in (self.master_id, *self.sync_state_set)
            and one.broker_id < newest.get(one.address, FIRST_BROKER_ID)
        )

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(one.broker_id for one in self.replicas)


def ordered(ids: Iterable[int]) -> tuple[int, ...]:
    """Return `ids` as a set is kept: sorted, each once."""
    return tuple(sorted(set(ids)))
