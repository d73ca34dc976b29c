"""Names of topics and groups that the protocol reserves, and prefixes that tell a retry or dead-letter topic.

Broker, store, access control, client and Spark all depend on these names, so each name is declared here only.
Source: RocketMQ 5.3.3, `TopicValidator`, `MixAll`, `PopAckConstants`, `TimerMessageStore`.
"""

from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LIGHT_PREFIX: Final = "%LMQ%"  # light queues, which hold messages that were sent to other topics
LIGHT_QUEUE_ID: Final = 0  # the only queue of each of them

AUTO_CREATE_TOPIC: Final = "TBW102"  # a topic that is created by its first send is modelled on this one
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"  # messages with a delay level, until they are due
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"  # messages with a delay or delivery time of their own, until they are due
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"
# Messages for queues of static topics that have moved to another broker, until they are sent there.  Not in RocketMQ.
FORWARD_TOPIC: Final = "rmq_sys_FORWARD_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYNC_BROKER_MEMBER_GROUP_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"  # + broker name
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"  # + cluster name
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_OFFSET_TOPIC,
    }
)
# Topics to which a client must not send.
NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        FORWARD_TOPIC,
    }
)

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
FORWARD_GROUP: Final = "CID_RMQ_SYS_FORWARD"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANS_GROUP,
)


def retry_topic(group: str) -> str:
    """Return the name of the topic with the messages that `group` retries."""
    return RETRY_PREFIX + group


def is_light(name: str) -> bool:
    """Return whether `name` is that of a light queue or its group (`MixAll.isLmq`)."""
    return name.startswith(LIGHT_PREFIX)


def dlq_topic(group: str) -> str:
    """Return the name of the topic with the dead letters of `group`."""
    return DLQ_PREFIX + group
