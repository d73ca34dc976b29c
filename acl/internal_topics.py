"""Topics in which brokers keep messages on their way to others: who reads or writes them by-passes those.

Source of the names: RocketMQ 5.3.3, `TopicValidator`, `TimerMessageStore`, `PopAckConstants`.
"""

from typing import Final

from sprocket.remoting.message.topic_names import (
    ROCKSDB_OFFSET_TOPIC,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

_NAMES: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        ROCKSDB_OFFSET_TOPIC,
    }
)


def is_internal(topic: str) -> bool:
    """Whether only those who may do it with the cluster read and write `topic`."""
    return topic in _NAMES or topic.startswith(SYSTEM_TOPIC_PREFIX)
