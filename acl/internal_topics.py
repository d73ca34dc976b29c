"""Topics in which brokers keep messages on their way to others: who reads or writes them by-passes those.

Source of the names: RocketMQ 5.3.3, `TopicValidator`, `TimerMessageStore`, `PopAckConstants`.
"""

from typing import Final

_PREFIX: Final = "rmq_sys_"
_NAMES: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "CHECKPOINT_TOPIC",
    }
)


def is_internal(topic: str) -> bool:
    """Whether only those who may do it with the cluster read and write `topic`."""
    return topic in _NAMES or topic.startswith(_PREFIX)
