"""Kinds of topics: those of applications, and those that RocketMQ creates for itself.

Source: RocketMQ 5.3.3, `TopicValidator` and `MixAll`.
"""

import re
from enum import Enum
from typing import Final

from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    REPLY_TOPIC_POSTFIX,
    RETRY_PREFIX,
    REVIVE_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

REVIVE_PATTERN: Final = f"{REVIVE_TOPIC_PREFIX}.*"

# Topics of applications: the same expression in Python and in Spark.
APPLICATION_PATTERN: Final = (
    f"(?!{RETRY_PREFIX}|{DLQ_PREFIX}|{SYSTEM_TOPIC_PREFIX})"
    f"(?!(?:{'|'.join(sorted(SYSTEM_TOPICS))})$)(?!.*{REPLY_TOPIC_POSTFIX}$).*"
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
