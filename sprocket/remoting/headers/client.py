"""Headers of requests and responses about clients and their groups.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header`.
"""

from msgspec import field

from sprocket.remoting.headers.base import Header, Int, Long


class HeartbeatRequestHeader(Header, kw_only=True):
    """HEART_BEAT; the content is in the body."""


class UnregisterClientRequestHeader(Header, kw_only=True):
    """UNREGISTER_CLIENT."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED: broker to client, rebalance now."""

    consumer_group: str


class LockBatchMqRequestHeader(Header, kw_only=True):
    """LOCK_BATCH_MQ; the queues are in the body."""


class UnlockBatchMqRequestHeader(Header, kw_only=True):
    """UNLOCK_BATCH_MQ; the queues are in the body."""


class GetConsumerRunningInfoRequestHeader(Header, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(Header, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY: an operator has one consumer consume one message again."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class GetAllProducerInfoRequestHeader(Header, kw_only=True):
    """GET_ALL_PRODUCER_INFO."""


class GetConsumerConnectionListRequestHeader(Header, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(Header, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class CheckTransactionStateRequestHeader(Header, kw_only=True):
    """CHECK_TRANSACTION_STATE: broker to producer."""

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)
