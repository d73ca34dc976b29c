"""What brokers are told of the proxy's clients: its transactional producers, and if wanted its consumer groups.

A broker knows one member for each connection, so the proxy is one member of a group, whatever clients it has.
Source: RocketMQ 5.3.3, `ClusterTransactionService`; `LocalServiceManager` shares the broker's table of consumers.
"""

from collections.abc import Iterable
from typing import Final

from proxy.activity.transaction import TransactionalProducers
from proxy.clients.members import ConsumerGroup, Consumers
from sprocket.common import limits
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData
from sprocket.remoting.codec.body_limits import LISTS, count_values
from sprocket.remoting.codec.fastjson import dumps

# Half of what a broker takes, so that the producer groups have room beside them.
_MAX_BYTES: Final = LISTS.size_bytes // 2
_MAX_VALUES: Final = LISTS.values // 2


class Memberships:
    """Groups of the proxy's heartbeat.  Without `with_consumers` it names producer groups alone."""

    def __init__(self, producers: TransactionalProducers, consumers: Consumers, with_consumers: bool) -> None:
        self._producers = producers
        self._consumers = consumers
        self._with_consumers = with_consumers
        self._groups: frozenset[str] = frozenset()
        self._just_left: frozenset[str] = frozenset()

    def look(self) -> tuple[bool, frozenset[str]]:
        """Look at the consumer groups.  Return whether there is a new one, and those that have left.

        A group that has left is named twice: a heartbeat that was on its way may come after the first time.
        """
        if not self._with_consumers:
            return False, frozenset()
        before, self._groups = self._groups, frozenset(self._consumers.names_here())
        left_before, self._just_left = self._just_left, before - self._groups
        return bool(self._groups - before), (self._just_left | left_before) - self._groups

    def heartbeat(self, client_id: str) -> HeartbeatData | None:
        """Return the heartbeat for brokers; None if there is nothing to say."""
        data = self._producers.heartbeat(client_id)
        found = [group for name in sorted(self._groups) if (group := self._consumers.group(name)) is not None]
        if not found:
            return data
        data = data or HeartbeatData(client_id)
        data.consumer_data_set = _within_limits(found)
        return data


def _within_limits(groups: Iterable[ConsumerGroup]) -> list[ConsumerData]:
    """Return what fits into one heartbeat: a broker refuses a larger one, with the groups of everybody."""
    kept: list[ConsumerData] = []
    left_subscriptions, left_bytes, left_values = limits.MAX_HEARTBEAT_SUBSCRIPTIONS, _MAX_BYTES, _MAX_VALUES
    for group in groups:
        encoded = dumps(group.data)
        subscriptions, size, values = len(group.data.subscription_data_set), len(encoded), count_values(encoded)
        is_small = subscriptions <= left_subscriptions and size <= left_bytes and values <= left_values
        if is_small and len(kept) < limits.MAX_HEARTBEAT_GROUPS:
            kept.append(group.data)
            left_subscriptions, left_bytes, left_values = (
                left_subscriptions - subscriptions, left_bytes - size, left_values - values,
            )  # fmt: skip
    return kept
