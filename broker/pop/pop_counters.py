"""Number of acknowledged messages and of checkpoints, by topic and group.

Source of the names: RocketMQ 5.3.3, `BrokerStatsManager.incGroupAckNums`, `incGroupCkNums`, `incBrokerAckNums`,
`incBrokerCkNums`.
"""

from collections.abc import Callable, Mapping

from broker.config.live_config import LiveConfig


class PopCounters:
    """Counters that only grow."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        # Counts by topic@group.
        self._acks: dict[str, int] = {}
        self._checkpoints: dict[str, int] = {}

    def acknowledged(self, topic: str, group: str, count: int) -> None:
        """Count `count` acknowledged messages."""
        key = f"{topic}@{group}"
        self._acks[key] = self._acks.get(key, 0) + count

    def checkpointed(self, topic: str, group: str, count: int = 1) -> None:
        """Count `count` checkpoints."""
        key = f"{topic}@{group}"
        self._checkpoints[key] = self._checkpoints.get(key, 0) + count

    def by_name(self) -> dict[str, Callable[[], Mapping[str, int]]]:
        """Return the counters by the name under which operators query them; the broker's are under its cluster."""

        def total(counts: dict[str, int]) -> dict[str, int]:
            return {self._config.broker.broker_cluster_name: sum(counts.values())}

        return {
            "GROUP_ACK_NUMS": lambda: self._acks,
            "GROUP_CK_NUMS": lambda: self._checkpoints,
            "BROKER_ACK_NUMS": lambda: total(self._acks),
            "BROKER_CK_NUMS": lambda: total(self._checkpoints),
        }

    def forget_gone(self, is_there: Callable[[str, str], bool]) -> None:
        """Forget the counts of deleted topics and groups."""
        for counts in (self._acks, self._checkpoints):
            for key in [key for key in counts if not is_there(*_split(key))]:
                del counts[key]


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.rpartition("@")
    return topic, group
