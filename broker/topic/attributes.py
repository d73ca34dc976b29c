"""Attributes of topics.

Source: RocketMQ 5.5.1, `TopicAttributes`.
"""

from collections.abc import Mapping

from broker import attributes
from broker.attributes import Attribute, one_of
from sprocket.common import limits
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.topic import MESSAGE_TYPE, SHARDING_QUEUES
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.message_type import MessageType

QUEUE_TYPE = "queue.type"
CLEANUP_POLICY = "cleanup.policy"
_COMPACTION = "COMPACTION"
# Hours for which consumers may read a message of the topic.
RESERVE_TIME = "reserve.time"
# Number of newest bytes of each queue of the topic that consumers may read.  Not in RocketMQ.
RETENTION_BYTES = "retention.bytes"
# Minutes without a message after which a lite topic of this parent is deleted.
LITE_EXPIRATION = "lite.topic.expiration"
_MAX_EXPIRATION_MINUTES = 30 * 24 * 60


def _is_bound(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and -1 <= int(text) < 1 << 63


def _is_expiration(text: str) -> bool:
    return _is_bound(text) and int(text) <= _MAX_EXPIRATION_MINUTES


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(limits.MAX_ROUTE_QUEUES))


def sharding_queues(values: Mapping[str, str] | None) -> int | None:
    """Return the number of queues that sharding keys choose from; None if brokers do not check it."""
    text = (values or {}).get(SHARDING_QUEUES, "")
    return int(text) if _is_count(text) else None


def lite_expiration_minutes(values: Mapping[str, str] | None) -> int | None:
    """Return the minutes without a message after which lite topics are deleted; -1: never; None: no lite topics."""
    if (values or {}).get(MESSAGE_TYPE) != MessageType.LITE:
        return None
    text = (values or {}).get(LITE_EXPIRATION, "")
    return int(text) if _is_expiration(text) else -1


def is_compacted(values: Mapping[str, str] | None) -> bool:
    """Return whether only the last message of each key is kept (`CleanupPolicyUtils.isCompaction`)."""
    return (values or {}).get(CLEANUP_POLICY) == _COMPACTION


def bound(values: Mapping[str, str] | None, name: str) -> int | None:
    """Return the limit that an attribute sets; None if it is not set, or is -1 or 0, which mean no limit."""
    text = (values or {}).get(name, "")
    return int(text) if _is_bound(text) and int(text) > 0 else None


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    QUEUE_TYPE: one_of("BatchCQ", "SimpleCQ", changeable=False),
    CLEANUP_POLICY: one_of("DELETE", _COMPACTION, changeable=False),
    MESSAGE_TYPE: one_of("UNSPECIFIED", *MessageType, "MIXED", changeable=True),
    # The unit is hours, as in RocketMQ's tiered storage, the only part of RocketMQ that reads the attribute.
    RESERVE_TIME: Attribute(_is_bound, "a number of hours, or -1", True),
    LITE_EXPIRATION: Attribute(_is_expiration, f"a number of minutes up to {_MAX_EXPIRATION_MINUTES}, or -1", True),
    RETENTION_BYTES: Attribute(_is_bound, "a number of bytes, or -1", True),
    SHARDING_QUEUES: Attribute(_is_count, "a number of queues, or 0", True),
}


def altered(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a topic after `changes`; `current` is None for a topic that is being created.

    Raises RequestError.
    """
    values = attributes.altered(current, changes, TOPIC_ATTRIBUTES)
    if is_compacted(values) and (values.get(QUEUE_TYPE) == "BatchCQ" or values.get(MESSAGE_TYPE) == MessageType.LITE):
        # A record with many messages, or one in many queues, has no single last message of a key.
        remark = "cleanup.policy=COMPACTION needs queue.type=SimpleCQ, and a message.type other than LITE"
        raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
    return values
