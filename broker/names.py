"""Names of topics and groups: what is allowed, what is the system's, what is derived from what.

Source: RocketMQ 5.3.3, `TopicValidator`, `MixAll`, `Validators`, `PopAckConstants`.
"""

import re
from typing import Final

from sprocket.common.limits import MAX_GROUP_CHARS, MAX_TOPIC_CHARS

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYNC_BROKER_MEMBER_GROUP_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"

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
# Topics that a client must not send to.
NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
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

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]*")


def illegal_topic(topic: str) -> str | None:
    """Why `topic` cannot be the name of a topic; None if it can."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > MAX_TOPIC_CHARS:
        return "The specified topic is longer than topic max length."
    return None


def illegal_group(group: str) -> str | None:
    """Why `group` cannot be the name of a group; None if it can."""
    if not group.strip():
        return "the specified group is blank"
    if len(group) > MAX_GROUP_CHARS:
        return f"the specified group is longer than group max length {MAX_GROUP_CHARS}."
    if not _LEGAL.fullmatch(group):
        return f"the specified group[{group}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def retry_topic(group: str) -> str:
    """The topic that holds what a group could not consume yet."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic that holds what a group has given up."""
    return DLQ_PREFIX + group
