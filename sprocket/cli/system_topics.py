"""Topics that brokers make for themselves, told from those of applications.

Source: RocketMQ 5.3.3, `TopicConfigManager.init`, `TopicValidator`: cluster and broker names are topics, too.
"""

from collections.abc import Iterable

from sprocket.remoting.bodies.route import ClusterInfo
from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    REPLY_TOPIC_POSTFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

_PREFIXES = (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)


def without_system_topics(topics: Iterable[str], info: ClusterInfo) -> list[str]:
    """Those of `topics` that applications send to: no system, retry or dead-letter topics."""
    own = SYSTEM_TOPICS | info.cluster_addr_table.keys() | info.broker_addr_table.keys()
    own |= {f"{cluster}_{REPLY_TOPIC_POSTFIX}" for cluster in info.cluster_addr_table}
    return [topic for topic in topics if topic not in own and not topic.startswith(_PREFIXES)]
