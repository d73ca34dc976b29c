"""Names of the retry topics of pops, of two kinds: built and parsed.

Source: RocketMQ 5.3.3, `KeyBuilder`.
"""

from sprocket.remoting.message.pop_extra_info import is_retry_v2, retry_topic_v1, retry_topic_v2
from sprocket.remoting.message.topic_names import RETRY_PREFIX

__all__ = [
    "group_of",
    "is_retry_v2",
    "normal_topic",
    "normal_topic_of",
    "retry_topic",
    "retry_topic_v1",
    "retry_topic_v2",
]


def retry_topic(topic: str, group: str, v2: bool) -> str:
    """Return the retry topic of `topic`'s unacknowledged messages of `group`."""
    return retry_topic_v2(topic, group) if v2 else retry_topic_v1(topic, group)


def normal_topic(topic: str, group: str) -> str:
    """Return the real topic of `topic`, which may be a retry topic of either kind of `group`."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    return topic[len(RETRY_PREFIX) + len(group) + 1 :]


def normal_topic_of(topic: str) -> str:
    """Return the real topic of a retry topic of the second kind; any other name is returned unchanged."""
    parts = _parts_v2(topic)
    return parts[1] if parts else topic


def group_of(topic: str) -> str:
    """Return the group of a retry topic; of the first kind, group and topic, which cannot be told apart."""
    parts = _parts_v2(topic)
    return parts[0] if parts else topic[len(RETRY_PREFIX) :]


def _parts_v2(topic: str) -> tuple[str, str] | None:
    if not is_retry_v2(topic):
        return None
    group, _, normal = topic.partition("+")
    return (group[len(RETRY_PREFIX) :], normal) if normal and "+" not in normal else None
