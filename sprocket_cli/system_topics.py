"""Topics that brokers create for themselves, as opposed to topics of applications.

Cluster and broker names are such topics, too.  Source: RocketMQ 5.3.3, `TopicConfigManager.init`, `TopicValidator`.
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
    """Return `topics` without system, retry and dead-letter topics."""
    own = SYSTEM_TOPICS | info.cluster_addr_table.keys() | info.broker_addr_table.keys()
    own |= {f"{cluster}_{REPLY_TOPIC_POSTFIX}" for cluster in info.cluster_addr_table}
    return [topic for topic in topics if topic not in own and not topic.startswith(_PREFIXES)]
