"""Bodies about the work of consumers, and about what brokers and operators ask them to do.

Source: RocketMQ 5.3.3, `ConsumerRunningInfo`, `ProcessQueueInfo`, `PopProcessQueueInfo`, `ConsumeStatus`,
`ConsumeMessageDirectlyResult`, `CMResult`, `GetConsumerStatusBody`, `ResetOffsetBodyForC`, `MessageQueueForC`,
`QueryCorrectionOffsetBody`, `QueryConsumeQueueResponseBody`, `ConsumeQueueData`, `ConsumeStatsList`.
"""

from enum import Enum
from typing import Final, Generic

import msgspec

from sprocket.remoting.bodies.client import QueueKey, SubscriptionData
from sprocket.remoting.bodies.stats import ConsumeStats

# Keys of `ConsumerRunningInfo.properties`.
PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


class ProcessQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A queue that a consumer holds; times are ms, 0 for never."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    # Messages that an orderly consumer has taken and not committed.
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = msgspec.field(name="droped", default=False)
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopProcessQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """A queue that a consumer pops from."""

    wait_ack_count: int = 0
    dropped: bool = msgspec.field(name="droped", default=False)
    last_pop_timestamp: int = 0  # ms


class ConsumeStatus(msgspec.Struct, kw_only=True):
    """A consumer's rates in one topic; RT in ms, TPS in messages per second."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = msgspec.field(name="consumeFailedMsgs", default=0)  # in the last hour


class ConsumerRunningInfo(msgspec.Struct, Generic[QueueKey], rename="camel", kw_only=True):
    """Answer of a client to GET_CONSUMER_RUNNING_INFO."""

    properties: dict[str, object] = {}  # Java clients write numbers among the texts
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[QueueKey, ProcessQueueInfo] = {}
    mq_pop_table: dict[QueueKey, PopProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}  # by topic
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class CMResult(Enum):
    """How one message was consumed."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(msgspec.Struct, rename="camel", kw_only=True):
    """Answer of a client to CONSUME_MESSAGE_DIRECTLY."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0


class GetConsumerStatusBody(msgspec.Struct, Generic[QueueKey], rename="camel", kw_only=True):
    """Offsets of clients in their queues.

    A client answers GET_CONSUMER_STATUS_FROM_CLIENT with `message_queue_table`.  A broker answers
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS with the tables of its clients by client id.
    """

    message_queue_table: dict[QueueKey, int] = {}
    consumer_table: dict[str, dict[QueueKey, int]] = {}


class MessageQueueForC(msgspec.Struct, rename="camel"):
    """A queue with its new offset."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class ResetOffsetBodyForC(msgspec.Struct, rename="camel"):
    """Body of RESET_CONSUMER_CLIENT_OFFSET for clients that are written in C++."""

    offset_table: list[MessageQueueForC] = []


class QueryCorrectionOffsetBody(msgspec.Struct, rename="camel"):
    """Answer to QUERY_CORRECTION_OFFSET: queue id -> the lowest offset of all groups."""

    correction_offsets: dict[int, int] = {}


class ConsumeQueueData(msgspec.Struct, rename="camel", kw_only=True):
    """One entry of a ConsumeQueue."""

    physic_offset: int
    physic_size: int
    tags_code: int
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to QUERY_CONSUME_QUEUE; `queue_data` is absent if the queue has no such index."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0


class ConsumeStatsList(msgspec.Struct, Generic[QueueKey], rename="camel", kw_only=True):
    """Answer to GET_BROKER_CONSUME_STATS: for each group, its statistics by topic."""

    consume_stats_list: list[dict[str, list[ConsumeStats[QueueKey]]]] = []
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0
