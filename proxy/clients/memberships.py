"""What brokers are told of the proxy's clients: its transactional producers, and if wanted its consumer groups.

A broker knows one member for each connection, so the proxy is one member of a group, whatever clients it has.
Source: RocketMQ 5.3.3, `ClusterTransactionService`; `LocalServiceManager` shares the broker's table of consumers.
"""

from proxy.activity.transaction import TransactionalProducers
from proxy.clients.members import Consumers
from sprocket.common import limits
from sprocket.remoting.bodies.client import HeartbeatData


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
        data.consumer_data_set = [group.data for group in found[: limits.MAX_HEARTBEAT_GROUPS]]
        return data
