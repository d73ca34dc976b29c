"""What all slaves of a master have acknowledged, and what follows from it.

Source: RocketMQ 5.3.3, `GroupTransferService.doWaitTransfer`, `DefaultHAService.inSyncReplicasNums`,
`CommitLog.calcNeedAckNums`.  Unlike there a slave that is connected twice counts once.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

# Behind every offset.
NO_LIMIT: Final = (1 << 63) - 1


@dataclass(frozen=True)
class ReplicaRules:
    """haMaxGapNotInSync, inSyncReplicas, minInSyncReplicas, enableAutoInSyncReplicas; the master counts as one."""

    max_gap_bytes: int = 256 * 1024 * 1024
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    auto_in_sync_replicas: bool = False


class Replicas:
    """Slaves by identity, each with the offset that it has acknowledged.

    An identity is what tells two slaves apart: their address without the port, or a name that they gave.
    """

    def __init__(self, rules: ReplicaRules) -> None:
        self._rules = rules
        # identity -> connection -> acknowledged
        self._acked: dict[Hashable, dict[Hashable, int]] = {}

    def acknowledged(self, identity: Hashable, connection: Hashable, offset: int) -> None:
        """A slave has all before `offset`, says one of its connections."""
        self._acked.setdefault(identity, {})[connection] = offset

    def left(self, identity: Hashable, connection: Hashable) -> None:
        """A connection ended: what it acknowledged no longer counts."""
        connections = self._acked.get(identity, {})
        connections.pop(connection, None)
        if not connections:
            self._acked.pop(identity, None)

    def offsets(self) -> list[int]:
        """What each slave has acknowledged, the furthest first."""
        return sorted((max(connections.values()) for connections in self._acked.values()), reverse=True)

    def in_sync(self, end_offset: int) -> int:
        """How many replicas, the master among them, are near enough to the log's end."""
        return 1 + sum(end_offset - offset < self._rules.max_gap_bytes for offset in self.offsets())

    def required(self, end_offset: int) -> int:
        """How many replicas, the master among them, must have a message before it counts as replicated.

        At least two: in RocketMQ 5.3.3 inSyncReplicas = 1, which is its default, makes SYNC_MASTER wait for nobody.
        With enableAutoInSyncReplicas as many as are in sync, but minInSyncReplicas at the least.
        """
        rules = self._rules
        required = max(2, rules.in_sync_replicas)
        if rules.auto_in_sync_replicas:
            required = max(rules.min_in_sync_replicas, min(required, self.in_sync(end_offset)))
        return required

    def acknowledged_by(self, replicas: int) -> int:
        """Up to where at least so many replicas, the master among them, have the log; -1 for fewer slaves than that."""
        if replicas <= 1:
            return NO_LIMIT
        offsets = self.offsets()
        return offsets[replicas - 2] if len(offsets) >= replicas - 1 else -1
