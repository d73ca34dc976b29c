"""Subscriptions of consumers that need no heartbeat, because each of their requests says what they want.

Source: RocketMQ 5.3.3, `ConsumerManager.compensateSubscribeData`, `removeExpireConsumerGroupInfo`.
"""

from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import SubscriptionData


class AssumedSubscriptions:
    """Group -> topic -> what its last request wanted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, tuple[SubscriptionData, float]]] = {}

    def note(self, group: str, subscription: SubscriptionData) -> None:
        """A request of `group` wants this of its topic."""
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        topics[subscription.topic] = (subscription, self._clock.monotonic())

    def find(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group's last request wanted of the topic."""
        found = self._groups.get(group, {}).get(topic)
        return None if found is None else found[0]

    def expire(self, timeout_s: float) -> None:
        """Forget what was not asked for again in `timeout_s`."""
        oldest = self._clock.monotonic() - timeout_s
        for group, topics in list(self._groups.items()):
            for topic, (_, noted_at) in list(topics.items()):
                if noted_at < oldest:
                    del topics[topic]
            if not topics:
                del self._groups[group]
