"""Kinds of topics: those of applications, and those that RocketMQ creates for itself.

Source: RocketMQ 5.3.3, `TopicValidator` and `MixAll`.
"""

import re
from enum import Enum
from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
REVIVE_PATTERN: Final = "rmq_sys_REVIVE_LOG_.*"
SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        TRACE_TOPIC,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_SYSTEM_PREFIX: Final = "rmq_sys_"
_REPLY_POSTFIX: Final = "REPLY_TOPIC"

# Topics of applications: the same expression in Python and in Spark.
APPLICATION_PATTERN: Final = (
    f"(?!{RETRY_PREFIX}|{DLQ_PREFIX}|{_SYSTEM_PREFIX})"
    f"(?!(?:{'|'.join(sorted(SYSTEM_TOPICS))})$)(?!.*{_REPLY_POSTFIX}$).*"
)


class TopicKind(Enum):
    """Purpose of a topic; the value is its name on the page."""

    APPLICATION = "application"
    RETRY = "retry"
    DEAD_LETTER = "dead letter"
    SYSTEM = "system"


def kind_of(topic: str) -> TopicKind:
    """Return the kind of `topic`."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DEAD_LETTER
    return TopicKind.APPLICATION if re.fullmatch(APPLICATION_PATTERN, topic) else TopicKind.SYSTEM


def group_of(topic: str) -> str:
    """Return the consumer group of a retry or dead-letter topic; a retry topic of pop ends in ``+<topic>``."""
    return topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX).partition("+")[0]
