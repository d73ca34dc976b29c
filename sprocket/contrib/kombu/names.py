"""Names of RocketMQ for names of AMQP.

An exchange is a topic, a queue is a consumer group, and the routing key of a message is its tag.  So a broker knows
who has read what, and every queue that is bound to an exchange gets its own copy.
"""

import re
from hashlib import sha256
from typing import Final

# Topic of messages to the default exchange, which names a queue by its routing key.
DEFAULT_EXCHANGE: Final = "kombu-default"

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_CHARS: Final = 100
_HASH_CHARS: Final = 8


def legal(name: str) -> str:
    """Return `name` if RocketMQ takes it, otherwise one like it that no other name has.

    A changed name ends with a hash of the whole one: ``celery@a.pidbox`` is ``celery_a_pidbox-59f1c30b``.
    """
    if name and len(name) <= _MAX_CHARS and not _ILLEGAL.search(name):
        return name
    return f"{_ILLEGAL.sub('_', name)[:_MAX_CHARS]}-{sha256(name.encode()).hexdigest()[:_HASH_CHARS]}"


def topic_of(exchange: str, prefix: str = "") -> str:
    """Return the topic of an exchange; of the default exchange for an empty name."""
    return prefix + (legal(exchange) if exchange else DEFAULT_EXCHANGE)


def group_of(queue: str, prefix: str = "") -> str:
    """Return the consumer group of a queue."""
    return prefix + legal(queue)


def tag_of(routing_key: str) -> str:
    """Return the tag of a routing key; empty for an empty one."""
    return legal(routing_key) if routing_key else ""
