"""Choice of the queue for the next message.

Source: RocketMQ 5.3.3, `TopicPublishInfo`, `MQFaultStrategy.selectOneMessageQueue`, `SelectMessageQueueByHash`; 5.5.1,
`ProducerProcessor`, `LiteShardingImpl`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.send.consistent_hash import consistent_hash
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codec.java_hash import java_hash_code, java_hash_index


class RoundRobin:
    """Round robin over the queues of each topic, broker by broker, without the brokers to avoid.

    `first` returns the position to begin at in a topic.  It is random, so that producers that start together do not all
    send to one queue, and topics created by their first message do not all land on one broker.
    """

    def __init__(self, first: Callable[[], int] = lambda: 0) -> None:
        self._first = first
        self.positions: dict[str, int] = {}  # of the next queue, by topic; the compiled start of sends has it too
        self._before = 0  # the position before the last choice

    def choose(
        self,
        route: TopicRoute,
        is_available: Callable[[str], bool] | None = None,
        failed: Sequence[str] = (),
    ) -> MessageQueue:
        """Return a queue of `route`, which has at least one; `failed` has the brokers that failed, the last one last.

        It prefers an available broker that has not failed, then any broker but the last failed one, then any broker.
        """
        queues = route.rotation or route.publish
        count = len(queues)
        index = self.positions.get(route.topic)
        if index is None:
            index = self._first() % count
        self._before = index
        if is_available is not None or failed:
            for step in range(count):
                queue = queues[(index + step) % count]
                name = route.broker_of(queue)
                if name not in failed and (is_available is None or is_available(name)):
                    self.positions[route.topic] = index + step + 1
                    return queue
            for step in range(count):
                queue = queues[(index + step) % count]
                if not failed or route.broker_of(queue) != failed[-1]:
                    self.positions[route.topic] = index + step + 1
                    return queue
        self.positions[route.topic] = index + 1
        return queues[index % count]

    def undo(self, topic: str) -> None:
        """Undo the last choice, which was for `topic`: its queue was not used, and is the next one again."""
        self.positions[topic] = self._before


def by_sharding_key(route: TopicRoute, key: str) -> MessageQueue:
    """Return the queue of `key`: the same one as long as the route has the same queues."""
    return route.publish[java_hash_index(key, len(route.publish))]


def by_consistent_hash(route: TopicRoute, key: str) -> MessageQueue:
    """Return the queue of a lite topic, or at a proxy of a message group: most keep theirs when queues are added."""
    return route.publish[consistent_hash(java_hash_code(key), len(route.publish))]


BY_HASH: Final = "hash"
BY_CONSISTENT_HASH: Final = "consistentHash"
# How a key chooses its queue, under the names that a message's INNER_SHARDING has.
CHOICES: Final[Mapping[str, Callable[[TopicRoute, str], MessageQueue]]] = {
    BY_HASH: by_sharding_key,
    BY_CONSISTENT_HASH: by_consistent_hash,
}
