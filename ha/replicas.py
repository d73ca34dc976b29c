"""What all slaves of a master have acknowledged, which of them are in sync, and what follows from it.

In sync is a slave that is connected, has caught up since it came, lacks less than haMaxGapNotInSync, and had all that
there was within the last haMaxTimeSlaveNotCatchup.  A slave has caught up when it has what the log held at some moment
after it came: under load nobody ever has the very end.

Source: RocketMQ 5.3.3, `GroupTransferService.doWaitTransfer`, `DefaultHAService.inSyncReplicasNums`,
`CommitLog.calcNeedAckNums`, `AutoSwitchHAService.maybeExpandInSyncStateSet`, `maybeShrinkSyncStateSet`.  Unlike there a
slave that is connected twice counts once, and the in-sync set decides with and without a controller.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

# Behind every offset.
NO_LIMIT: Final = (1 << 63) - 1
_NEVER: Final = float("-inf")
# Looks that are further apart than this say that the master itself stood still.
_LONGEST_STEP_S: Final = 5.0


@dataclass(frozen=True)
class ReplicaRules:
    """haMaxGapNotInSync, haMaxTimeSlaveNotCatchup, inSyncReplicas, minInSyncReplicas, enableAutoInSyncReplicas,
    allAckInSyncStateSet, haAckFlushedOffset; the master counts as one replica."""

    max_gap_bytes: int = 256 * 1024 * 1024
    max_behind_s: float = 15.0
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    auto_in_sync_replicas: bool = False
    # Every slave in sync has to have a message, not only so many.
    all_in_sync: bool = False
    # What a slave has flushed counts, where it says so.
    counts_flushed: bool = False


class Standing(NamedTuple):
    """How far the log is replicated, offsets of its bytes."""

    # Consumers may see what lies before; None: as far as they may already.
    limit: int | None
    # The required replicas have what lies before.
    acknowledged: int
    # Enough slaves are in sync for more to be acknowledged.
    is_enough: bool
    # Too few replicas are in sync to take anything.
    is_refusing: bool


class _Slave:
    """One slave, however often it is connected."""

    __slots__ = ("caught_up_at", "connections", "has", "is_in_sync", "joins_at", "joins_from")

    def __init__(self, end_offset: int, now: float) -> None:
        # What it has acknowledged, by connection.
        self.connections: dict[Hashable, int] = {}
        self.has = -1
        self.is_in_sync = False
        # It had all that there was at this time.
        self.caught_up_at = _NEVER
        # While it is not in sync: it joins with this offset, where the log ended at this time.
        self.joins_from, self.joins_at = end_offset, now


class Replicas:
    """Slaves by identity, each with the offset that it has acknowledged.  Times are monotonic, seconds.

    An identity is what tells two slaves apart: their address without the port, or a name that they gave.  `check` is to
    be called about once a second.
    """

    def __init__(self, rules: ReplicaRules) -> None:
        self.rules = rules
        self._slaves: dict[Hashable, _Slave] = {}
        # (time, where the log ended then) of each check, as far back as matters.
        self._ends: deque[tuple[float, int]] = deque()

    # What happens

    def acknowledged(
        self,
        identity: Hashable,
        connection: Hashable,
        offset: int,
        end_offset: int,
        now: float,
        flushed_offset: int | None = None,
    ) -> None:
        """A slave has all before `offset`, says one of its connections; the log ends at `end_offset`.

        `flushed_offset` is what it has on its disk; None from a slave that does not say it, as RocketMQ's.
        """
        slave = self._slaves.get(identity)
        if slave is None:
            slave = self._slaves[identity] = _Slave(end_offset, now)
        if flushed_offset is not None and self.rules.counts_flushed:
            offset = min(offset, flushed_offset)
        slave.connections[connection] = offset
        slave.has = offset if len(slave.connections) == 1 else max(slave.connections.values())
        if slave.has >= end_offset and slave.is_in_sync:
            slave.caught_up_at = now
        elif not slave.is_in_sync:
            self._judge(slave, end_offset, now)

    def left(self, identity: Hashable, connection: Hashable) -> None:
        """A connection ended: what it acknowledged no longer counts."""
        slave = self._slaves.get(identity)
        if slave is None:
            return
        slave.connections.pop(connection, None)
        if not slave.connections:
            del self._slaves[identity]
            return
        had, slave.has = slave.has, max(slave.connections.values())
        if slave.has < had:
            # The other connection has yet to show that it is the same log: in sync once it has as much again.
            slave.is_in_sync = False
            slave.caught_up_at = slave.joins_at = _NEVER
            slave.joins_from = max(slave.joins_from, had)

    def check(self, end_offset: int, now: float) -> None:
        """Time has passed: who has all is in sync however long ago it said so, who is behind for too long is not."""
        ends = self._ends
        if ends and (stood_still_s := now - ends[-1][0]) > _LONGEST_STEP_S:
            self._excuse(stood_still_s, now)
        ends.append((now, end_offset))
        while len(ends) > 1 and ends[1][0] < now - self.rules.max_behind_s:
            ends.popleft()
        for slave in self._slaves.values():
            self._judge(slave, end_offset, now)

    def _excuse(self, stood_still_s: float, now: float) -> None:
        """A master that was stopped itself has heard nobody."""
        self._ends = deque((at + stood_still_s, end) for at, end in self._ends)
        for slave in self._slaves.values():
            slave.caught_up_at = min(slave.caught_up_at + stood_still_s, now)
            slave.joins_at = min(slave.joins_at + stood_still_s, now)

    def _judge(self, slave: _Slave, end_offset: int, now: float) -> None:
        """Whether it is in sync."""
        if slave.has >= end_offset:
            slave.caught_up_at = now
        else:
            self._look_back(slave)
        is_near = end_offset - slave.has < self.rules.max_gap_bytes
        is_in_sync = is_near and now - slave.caught_up_at <= self.rules.max_behind_s
        if slave.is_in_sync and not is_in_sync:
            slave.joins_from, slave.joins_at = end_offset, now
        slave.is_in_sync = is_in_sync and (slave.is_in_sync or slave.has >= slave.joins_from)

    def _look_back(self, slave: _Slave) -> None:
        """Find out when the log ended where it is now."""
        if not slave.is_in_sync and slave.has >= slave.joins_from:
            slave.caught_up_at = max(slave.caught_up_at, slave.joins_at)
        if slave.is_in_sync or slave.has >= slave.joins_from:
            for at, end in reversed(self._ends):
                if end <= slave.has:
                    slave.caught_up_at = max(slave.caught_up_at, at)
                    break

    # What follows

    def offsets(self) -> list[int]:
        """What each slave has acknowledged, the furthest first."""
        return sorted((slave.has for slave in self._slaves.values()), reverse=True)

    def in_sync_slaves(self) -> frozenset[Hashable]:
        """Who is in sync beside the master."""
        return frozenset(identity for identity, slave in self._slaves.items() if slave.is_in_sync)

    def behind_s(self, identity: Hashable, end_offset: int, now: float) -> float | None:
        """For how long a slave has not had all that there was; None if it never had, or is none."""
        slave = self._slaves.get(identity)
        if slave is None:
            return None
        if slave.has >= end_offset:
            return 0.0
        self._look_back(slave)
        return None if slave.caught_up_at == _NEVER else now - slave.caught_up_at

    def required(self) -> int:
        """How many replicas, the master among them, must have a message before it counts as acknowledged.

        At least two: in RocketMQ 5.3.3 inSyncReplicas = 1, which is its default, makes SYNC_MASTER wait for nobody.
        With enableAutoInSyncReplicas as many as are in sync, but minInSyncReplicas at the least; with
        allAckInSyncStateSet all that are in sync, and no fewer than without.
        """
        return self._required(sum(slave.is_in_sync for slave in self._slaves.values()))

    def _required(self, slaves_in_sync: int) -> int:
        rules = self.rules
        required = max(2, rules.in_sync_replicas)
        if rules.all_in_sync:
            required = max(required, 1 + slaves_in_sync)
        if rules.auto_in_sync_replicas:
            required = max(rules.min_in_sync_replicas, min(required, 1 + slaves_in_sync))
        return required

    def standing(self) -> Standing:
        """How far the log is replicated: only what slaves in sync have counts."""
        offsets = [slave.has for slave in self._slaves.values() if slave.is_in_sync]
        if len(offsets) > 1:
            offsets.sort(reverse=True)
        count = len(offsets)
        wanted = self._required(count) - 1
        is_enough = count >= wanted
        if not wanted:
            acknowledged = NO_LIMIT
        else:
            acknowledged = offsets[wanted - 1] if is_enough else -1
        is_refusing = 1 + count < self.rules.min_in_sync_replicas
        limit: int | None
        if is_refusing:
            limit = None
        elif not count:
            limit = NO_LIMIT
        else:
            # With fewer than are wanted: what all of them have.
            limit = offsets[min(wanted, count) - 1]
        return Standing(limit, acknowledged, is_enough, is_refusing)
