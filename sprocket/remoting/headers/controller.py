"""Headers of requests and responses about controllers.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header.controller`.
"""

from sprocket.remoting.headers.base import Header, Int, Long


class AlterSyncStateSetRequestHeader(Header, kw_only=True):
    """CONTROLLER_ALTER_SYNC_STATE_SET; the new set is in the body."""

    broker_name: str
    master_epoch: Int
    master_broker_id: Long | None = None
    invoke_time: Long = 0


class AlterSyncStateSetResponseHeader(Header, kw_only=True):
    """The epoch of the new sync-state set."""

    new_sync_state_set_epoch: Int


class ElectMasterRequestHeader(Header, kw_only=True):
    """CONTROLLER_ELECT_MASTER; broker id -1: the controller itself asks."""

    cluster_name: str = ""
    broker_name: str
    broker_id: Long = -1
    designate_elect: bool = False
    invoke_time: Long = 0


class ElectMasterResponseHeader(Header, kw_only=True):
    """The master after the election."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class GetMetaDataResponseHeader(Header, kw_only=True):
    """The controllers as one of them sees them; `peers` is ``id:host:port;`` for each."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class GetReplicaInfoRequestHeader(Header, kw_only=True):
    """CONTROLLER_GET_REPLICA_INFO."""

    broker_name: str


class GetReplicaInfoResponseHeader(Header, kw_only=True):
    """The master; the sync-state set is in the body."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class GetNextBrokerIdRequestHeader(Header, kw_only=True):
    """CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str
    broker_name: str


class GetNextBrokerIdResponseHeader(Header, kw_only=True):
    """The broker id to apply for."""

    cluster_name: str
    broker_name: str
    next_broker_id: Long | None = None


class ApplyBrokerIdRequestHeader(Header, kw_only=True):
    """CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Long
    register_check_code: str


class ApplyBrokerIdResponseHeader(Header, kw_only=True):
    """The group in which the id is assigned."""

    cluster_name: str
    broker_name: str


class RegisterBrokerToControllerRequestHeader(Header, kw_only=True):
    """CONTROLLER_REGISTER_BROKER."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    broker_address: str
    invoke_time: Long = 0


class RegisterBrokerToControllerResponseHeader(Header, kw_only=True):
    """The master, if one is alive; the sync-state set is in the body."""

    cluster_name: str
    broker_name: str
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class CleanControllerBrokerDataRequestHeader(Header, kw_only=True):
    """CLEAN_BROKER_DATA; the ids stand with ``;`` between them, all if there are none."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long = 0


class NotifyBrokerRoleChangedRequestHeader(Header, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED; the sync-state set is in the body."""

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None


class ForgetControllerRequestHeader(Header, kw_only=True):
    """FORGET_CONTROLLER, Sprocket's own: the id of a controller that lost its disk."""

    controller_id: str
