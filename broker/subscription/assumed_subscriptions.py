"""Subscriptions of consumers without heartbeats; each of their requests states the subscription.

Source: RocketMQ 5.3.3, `ConsumerManager.compensateSubscribeData`, `removeExpireConsumerGroupInfo`.
"""

from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import SubscriptionData


class AssumedSubscriptions:
    """Table of subscriptions: group -> topic -> subscription of the last request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, tuple[SubscriptionData, float]]] = {}

    def note(self, group: str, *subscriptions: SubscriptionData) -> None:
        """Store the subscriptions that a request of `group` stated."""
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        now = self._clock.monotonic()
        for subscription in subscriptions:
            topics[subscription.topic] = (subscription, now)

    def find(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of the group's last request for the topic."""
        found = self._groups.get(group, {}).get(topic)
        return None if found is None else found[0]

    def expire(self, timeout_s: float) -> None:
        """Remove subscriptions that no request stated for `timeout_s`."""
        oldest = self._clock.monotonic() - timeout_s
        for group, topics in list(self._groups.items()):
            for topic, (_, noted_at) in list(topics.items()):
                if noted_at < oldest:
                    del topics[topic]
            if not topics:
                del self._groups[group]
