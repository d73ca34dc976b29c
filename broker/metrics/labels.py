"""What labels of metrics say about topics and groups.

Source: RocketMQ 5.3.3, `TopicValidator.isSystemTopic`, `BrokerMetricsManager.isSystemGroup`, `isRetryOrDlqTopic`.
"""

from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)


def is_system_topic(topic: str) -> bool:
    """Return whether the broker itself uses the topic."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Return whether the broker itself uses the group."""
    return group.upper().startswith(SYSTEM_GROUP_PREFIX)


def is_system(topic: str, group: str) -> bool:
    """Return whether the broker itself uses the topic or the group."""
    return is_system_topic(topic) or is_system_group(group)


def is_retry_or_dlq(topic: str) -> bool:
    """Return whether a topic holds messages that a group could not process."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
