"""Headers of requests and responses about the name server.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header`.
"""

import msgspec

from sprocket.remoting.headers.base import Header, Int, Long


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """REGISTER_BROKER; topics and filter servers are in the body, whose CRC-32 is `body_crc32`."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)  # `MixAll.ZONE_NAME`


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """Where the master of the group is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(Header, kw_only=True):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """BROKER_HEARTBEAT: light-weight sign of life.

    The last fields are Sprocket's own, for its controllers.  A master of epoch `lease_epoch` asks for a lease, and says
    in how many replicas an acknowledged message is (`required_acks`, 0: in the whole sync-state set).  A broker with
    `resigned_epoch` was master in that epoch, or is taken for it; it does not lead, and will not.  `is_leaving`: it
    stops.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None
    lease_epoch: Int | None = None
    required_acks: Int | None = None
    resigned_epoch: Int | None = None
    is_leaving: bool = False


class BrokerHeartbeatResponseHeader(Header, kw_only=True):
    """Of Sprocket's controllers: that they know leases, the granted one, and the newest epoch that they know."""

    knows_leases: bool = False
    lease_millis: Int | None = None
    master_epoch: Int | None = None


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """QUERY_DATA_VERSION; the version is in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """Whether the name server has another version."""

    changed: bool


class GetRouteInfoRequestHeader(Header, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: str | None = msgspec.field(name="__ZONE_MODE", default=None)  # `MixAll.ZONE_MODE`
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class RegisterTopicRequestHeader(Header, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(Header, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class PutKVConfigRequestHeader(Header, kw_only=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, kw_only=True):
    """GET_KV_CONFIG."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """The value."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """DELETE_KV_CONFIG."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """Topics changed."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """Topics changed."""

    add_topic_count: Int


class NotifyMinBrokerIdChangeRequestHeader(Header, kw_only=True):
    """NOTIFY_MIN_BROKER_ID_CHANGE: name server to broker."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ExchangeHAInfoRequestHeader(Header, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO: a master says where it is; with no address a slave asks its master."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(Header, kw_only=True):
    """What a master says of itself; empty from a slave."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(Header, kw_only=True):
    """RESET_MASTER_FLUSH_OFFSET: how far the master had flushed when it started, for its slaves."""

    master_flush_offset: Long | None = None
