"""Which queue the next message goes to.

Source: RocketMQ 5.3.3, `TopicPublishInfo`, `MQFaultStrategy.selectOneMessageQueue`, `SelectMessageQueueByHash`.
"""

from collections.abc import Callable

from remoting.bodies.client import MessageQueue
from remoting.java_hash import java_hash_code
from sprocket.client.topic_route import TopicRoute


class RoundRobin:
    """Goes through the queues of each topic in turn, past those of brokers that are to be avoided."""

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._next: dict[str, int] = {}

    def choose(
        self, route: TopicRoute, is_available: Callable[[str], bool] | None = None, last_broker: str | None = None
    ) -> MessageQueue:
        """A queue of `route`, which has at least one.

        Preferred: an available broker other than `last_broker`; then another broker; then any.
        """
        queues = route.publish
        count = len(queues)
        index = self._next.get(route.topic, self._start)
        if is_available is not None or last_broker is not None:
            for step in range(count):
                queue = queues[(index + step) % count]
                if queue.broker_name != last_broker and (is_available is None or is_available(queue.broker_name)):
                    self._next[route.topic] = index + step + 1
                    return queue
            for step in range(count):
                queue = queues[(index + step) % count]
                if queue.broker_name != last_broker:
                    self._next[route.topic] = index + step + 1
                    return queue
        self._next[route.topic] = index + 1
        return queues[index % count]


def by_sharding_key(route: TopicRoute, key: str) -> MessageQueue:
    """The queue of `key`: the same one as long as the route has the same queues."""
    # Java takes the remainder first, whose sign is that of the hash, and then its absolute value.
    return route.publish[abs(java_hash_code(key)) % len(route.publish)]
