"""Headers of requests and responses about sending.

Names, types and which fields are required: RocketMQ 5.3.3, package `remoting.protocol.header`.
"""

from typing import Final

from msgspec import field

from sprocket.remoting.headers.base import Header, Int, Long

# Field of the response to a send of messages with an IDEMPOTENCE_ID: how many of them the broker already had.  Not in
# RocketMQ, whose brokers store such messages like others and whose clients skip the field.
DUPLICATES_FIELD: Final = "duplicates"
# Field of a send whose sharding key chose the queue: from how many queues.  Not in RocketMQ, whose brokers skip it.
SHARDING_QUEUES_FIELD: Final = "shardingQueues"


class SendMessageRequestHeader(Header, kw_only=True):
    """SEND_MESSAGE and SEND_BATCH_MESSAGE before V2: every name in full."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int | None = None
    sharding_queues: Int | None = None


_V2_NAMES = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
    "sharding_queues": SHARDING_QUEUES_FIELD,
}


class SendMessageRequestHeaderV2(Header, kw_only=True, rename=_V2_NAMES):
    """SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the same fields under one-letter names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    batch: bool | None = None
    broker_name: str | None = None
    sharding_queues: Int | None = None


class SendMessageResponseHeader(Header, kw_only=True):
    """Where the message lies; `msg_id` is the offset message id."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ConsumerSendMsgBackRequestHeader(Header, kw_only=True):
    """CONSUMER_SEND_MSG_BACK: deliver again after a delay, or to the dead-letter topic."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    broker_name: str | None = field(name="bname", default=None)


class EndTransactionRequestHeader(Header, kw_only=True):
    """END_TRANSACTION: commit or roll back a half message."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class RecallMessageRequestHeader(Header, kw_only=True):
    """RECALL_MESSAGE: take back a delayed message by its handle."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """`msg_id` is the unique key of the message that is taken back."""

    msg_id: str


class ReplyMessageRequestHeader(Header, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: the reply of a request-reply call."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long
