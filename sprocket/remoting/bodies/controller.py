"""Bodies of requests and responses about controllers.

Source: RocketMQ 5.3.3, `SyncStateSet`, `ElectMasterResponseBody`, `BrokerReplicasInfo`, `EpochEntryCache`.
"""

import msgspec

from sprocket.remoting.bodies.route import BrokerMemberGroup

# `EpochEntry.endOffset` of the last epoch, which has no end yet.
NO_END = 2**63 - 1


class SyncStateSet(msgspec.Struct, rename="camel"):
    """Broker ids of the replicas in sync, and the epoch of this set."""

    sync_state_set: list[int] = []
    sync_state_set_epoch: int = 0


class ElectMasterResponseBody(msgspec.Struct, rename="camel"):
    """The group and its sync-state set after an election."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[int] = []


class ReplicaIdentity(msgspec.Struct, rename="camel"):
    """One replica of a group, and whether the controller gets its heartbeats."""

    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool = False


class ReplicasInfo(msgspec.Struct, rename="camel"):
    """The replicas of one group."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = []
    not_in_sync_replicas: list[ReplicaIdentity] = []


class BrokerReplicasInfo(msgspec.Struct, rename="camel"):
    """Response to CONTROLLER_GET_SYNC_STATE_DATA, by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = {}


class BrokerGroupState(msgspec.Struct, rename="camel"):
    """A group as other controllers knew it: body of ADOPT_BROKER_GROUP, Sprocket's own.

    `brokers` are the addresses by broker id.
    """

    cluster_name: str
    broker_name: str
    brokers: dict[int, str]
    next_broker_id: int
    master_broker_id: int
    master_epoch: int
    sync_state_set_epoch: int


class EpochEntry(msgspec.Struct, rename="camel"):
    """Part of a log that one master wrote: from `start_offset` to `end_offset`."""

    epoch: int
    start_offset: int
    end_offset: int = NO_END


class EpochEntryCache(msgspec.Struct, rename="camel"):
    """Response to GET_BROKER_EPOCH_CACHE."""

    cluster_name: str
    broker_name: str
    broker_id: int = 0
    epoch_list: list[EpochEntry] = []
    max_offset: int = 0
