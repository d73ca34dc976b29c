"""Which queue the next message goes to.

Source: RocketMQ 5.3.3, `TopicPublishInfo`, `MQFaultStrategy.selectOneMessageQueue`, `SelectMessageQueueByHash`.
"""

from collections.abc import Callable, Sequence

from sprocket.client.connection.topic_route import TopicRoute
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codec.java_hash import java_hash_code


class RoundRobin:
    """Goes through the queues of each topic in turn, broker by broker, past those brokers that are to be avoided.

    `first` gives the place to begin at in a topic: a random one, so that producers that start together do not all
    send to one queue, and topics that are created by their first message do not all come to one broker.
    """

    def __init__(self, first: Callable[[], int] = lambda: 0) -> None:
        self._first = first
        self._next: dict[str, int] = {}

    def choose(
        self,
        route: TopicRoute,
        is_available: Callable[[str], bool] | None = None,
        failed: Sequence[str] = (),
    ) -> MessageQueue:
        """A queue of `route`, which has at least one; `failed` are the brokers that failed just now, the last one last.

        Preferred: a broker that is available and has not failed; then any but the last one that failed; then any.
        """
        queues = route.rotation
        count = len(queues)
        index = self._next.get(route.topic)
        if index is None:
            index = self._first() % count
        if is_available is not None or failed:
            for step in range(count):
                queue = queues[(index + step) % count]
                if queue.broker_name not in failed and (is_available is None or is_available(queue.broker_name)):
                    self._next[route.topic] = index + step + 1
                    return queue
            for step in range(count):
                queue = queues[(index + step) % count]
                if not failed or queue.broker_name != failed[-1]:
                    self._next[route.topic] = index + step + 1
                    return queue
        self._next[route.topic] = index + 1
        return queues[index % count]


def by_sharding_key(route: TopicRoute, key: str) -> MessageQueue:
    """The queue of `key`: the same one as long as the route has the same queues."""
    # Java takes the remainder first, whose sign is that of the hash, and then its absolute value.
    return route.publish[abs(java_hash_code(key)) % len(route.publish)]
