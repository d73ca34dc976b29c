"""Broker group as the controllers know it.

Source: RocketMQ 5.3.3, `BrokerReplicaInfo`, `SyncStateInfo`.  RocketMQ keeps the two in separate tables; a group is
always in both, so here it is one record.
"""

from collections.abc import Iterable

import msgspec

# `MixAll.FIRST_BROKER_CONTROLLER_ID`
FIRST_BROKER_ID = 1


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """Member of a group.  `check_code` proves to whom the id was assigned: ``address;milliseconds``."""

    broker_id: int
    address: str
    check_code: str


class Group(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Broker group.  Never changed: a command makes a new one.

    `replicas` and `sync_state_set` are sorted by broker id, so that equal groups have equal bytes.  Both epochs grow by
    1 with each change.
    """

    cluster: str
    name: str
    next_broker_id: int = FIRST_BROKER_ID
    replicas: tuple[Replica, ...] = ()
    master_id: int | None = None
    master_epoch: int = 0
    sync_state_set: tuple[int, ...] = ()
    sync_state_set_epoch: int = 0

    def replica(self, broker_id: int | None) -> Replica | None:
        """Return the member with this id."""
        return next((one for one in self.replicas if one.broker_id == broker_id), None)

    def address_of(self, broker_id: int | None) -> str | None:
        """Return the address of the member with this id."""
        found = self.replica(broker_id)
        return None if found is None else found.address

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(one.broker_id for one in self.replicas)


def ordered(ids: Iterable[int]) -> tuple[int, ...]:
    """Return `ids` as a set is kept: sorted, each once."""
    return tuple(sorted(set(ids)))
