"""Names of RocketMQ for names of AMQP.

An exchange is a topic, a queue is a consumer group, and the routing key of a message is its tag.  So a broker knows
who has read what, and every queue that is bound to an exchange gets its own copy.
"""

from typing import Final

from sprocket.contrib.names import legal

# Topic of messages to the default exchange, which names a queue by its routing key.
DEFAULT_EXCHANGE: Final = "kombu-default"


def topic_of(exchange: str, prefix: str = "") -> str:
    """Return the topic of an exchange; of the default exchange for an empty name."""
    return prefix + (legal(exchange) if exchange else DEFAULT_EXCHANGE)


def group_of(queue: str, prefix: str = "") -> str:
    """Return the consumer group of a queue."""
    return prefix + legal(queue)


def tag_of(routing_key: str) -> str:
    """Return the tag of a routing key; empty for an empty one."""
    return legal(routing_key) if routing_key else ""
