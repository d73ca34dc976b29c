"""What all slaves of a master have acknowledged, which of them are in sync, and how far consumers may read.

A slave is in sync if all of this holds: it is connected; it caught up after it connected; it lacks less than
haMaxGapNotInSync; within the last haMaxTimeSlaveNotCatchup it had everything.  A slave has caught up when it has what
the log held at some moment after it connected.  Under load no slave ever has the very end.

Source: RocketMQ 5.3.3, `GroupTransferService.doWaitTransfer`, `DefaultHAService.inSyncReplicasNums`,
`CommitLog.calcNeedAckNums`, `AutoSwitchHAService.maybeExpandInSyncStateSet`, `maybeShrinkSyncStateSet`.  Unlike there,
a slave with two connections counts once, and the in-sync set decides with and without a controller.

In controller mode a slave counts only if it is in the controllers' set as well, see `Replicas.count_only`.  The
controllers may elect any member of their set.  So with allAckInSyncStateSet a message needs all members, also one that
is not in sync any more, until the controllers have taken it out.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

# Above every offset.
NO_LIMIT: Final = (1 << 63) - 1
_NEVER: Final = float("-inf")
# If two checks are further apart than this, the master itself stood still.
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
    # Every slave in sync must have a message, not only the required number.
    all_in_sync: bool = False
    # Where a slave reports what it flushed, that counts.
    counts_flushed: bool = False


class ReplicationProgress(NamedTuple):
    """How far the log is replicated, as physical offsets."""

    # Consumers may read up to here; None: no further than before.
    limit: int | None
    # The required replicas have everything before it.
    acknowledged: int
    # Enough slaves are in sync for further acknowledgements.
    is_enough: bool
    # Too few replicas are in sync to accept messages.
    is_refusing: bool


class _Slave:
    """One slave, with all its connections."""

    __slots__ = (
        "broker_id", "caught_up_at", "connections", "has", "is_in_sync", "is_learner", "joins_at", "joins_from",
    )  # fmt: skip

    def __init__(self, end_offset: int, now: float, broker_id: int | None, *, is_learner: bool) -> None:
        self.broker_id = broker_id
        self.is_learner = is_learner
        # Acknowledged offset by connection.
        self.connections: dict[Hashable, int] = {}
        self.has = -1
        self.is_in_sync = False
        # The last time at which it had everything.
        self.caught_up_at = _NEVER
        # While it is not in sync: it joins at this offset, where the log ended at this time.
        self.joins_from, self.joins_at = end_offset, now


class Replicas:
    """Slaves by identity, each with the offset that it has acknowledged.  Times are monotonic, seconds.

    An identity tells slaves apart: the address without the port, or the place in the cluster that the slave proved.
    `check` must be called about once a second.
    """

    def __init__(self, rules: ReplicaRules) -> None:
        self._rules = rules
        self._slaves: dict[Hashable, _Slave] = {}
        # (time, end of the log at that time) of each check, as far back as needed.
        self._ends: deque[tuple[float, int]] = deque()
        # In controller mode: the slaves that count, and those that the controllers may elect.
        self._only: frozenset[int] | None = None
        self._may_lead: frozenset[int] = frozenset()
        # What the controllers know of acknowledgements: no fewer replicas suffice; 0: all that may be elected.
        self._agreed = 1

    # Input

    @property
    def rules(self) -> ReplicaRules:
        """Current rules."""
        return self._rules

    def configure(self, rules: ReplicaRules) -> None:
        """Apply changed rules."""
        self._rules = rules

    def acknowledged(
        self,
        identity: Hashable,
        connection: Hashable,
        offset: int,
        end_offset: int,
        now: float,
        flushed_offset: int | None = None,
        *,
        broker_id: int | None = None,
        is_learner: bool = False,
    ) -> None:
        """Take the report of one connection that its slave has everything before `offset`.

        The log ends at `end_offset`.  The slave has flushed to `flushed_offset`; None if it does not report that, like
        RocketMQ's.  In controller mode a slave without `broker_id` does not count.  A slave with `is_learner`
        (asyncLearner) is never in sync.
        """
        slave = self._slaves.get(identity)
        if slave is None:
            slave = self._slaves[identity] = _Slave(end_offset, now, broker_id, is_learner=is_learner)
        if flushed_offset is not None and self._rules.counts_flushed:
            offset = min(offset, flushed_offset)
        slave.connections[connection] = offset
        slave.has = offset if len(slave.connections) == 1 else max(slave.connections.values())
        if slave.has >= end_offset and slave.is_in_sync:
            slave.caught_up_at = now
        elif not slave.is_in_sync:
            self._judge(slave, end_offset, now)

    def left(self, identity: Hashable, connection: Hashable) -> None:
        """Forget what a closed connection acknowledged."""
        slave = self._slaves.get(identity)
        if slave is None:
            return
        slave.connections.pop(connection, None)
        if not slave.connections:
            del self._slaves[identity]
            return
        had, slave.has = slave.has, max(slave.connections.values())
        if slave.has < had:
            # The other connection may be of a different log.  The slave is in sync again once it has as much as before.
            slave.is_in_sync = False
            slave.caught_up_at = slave.joins_at = _NEVER
            slave.joins_from = max(slave.joins_from, had)

    def count_only(self, broker_ids: frozenset[int], may_lead: frozenset[int] | None = None) -> None:
        """Let only the slaves `broker_ids` count for acknowledgements, by the decision of controllers.

        `may_lead` are the slaves that the controllers may elect.  While a change of their set is not decided,
        `broker_ids` are the members of both sets and `may_lead` those of either; otherwise they are the same.
        Neither contains the master.
        """
        self._only = broker_ids
        self._may_lead = broker_ids if may_lead is None else may_lead | broker_ids

    def require(self, acks: int) -> None:
        """Wait for so many replicas at least, with the master, whatever the rules say; 0: all that may be elected.

        The controllers know this number.  In an election they count on it.
        """
        self._agreed = acks

    def holding(self, offset: int) -> frozenset[int]:
        """Return the brokerIds of the slaves that have the log up to `offset`."""
        slaves = self._slaves.values()
        return frozenset(slave.broker_id for slave in slaves if slave.broker_id is not None and slave.has >= offset)

    def check(self, end_offset: int, now: float) -> None:
        """Judge all slaves again: a silent one with all of the log is in sync, one that lagged for too long is not."""
        ends = self._ends
        if ends and (stood_still_s := now - ends[-1][0]) > _LONGEST_STEP_S:
            self._excuse(stood_still_s, now)
        ends.append((now, end_offset))
        while len(ends) > 1 and ends[1][0] < now - self._rules.max_behind_s:
            ends.popleft()
        for slave in self._slaves.values():
            self._judge(slave, end_offset, now)

    def _excuse(self, stood_still_s: float, now: float) -> None:
        """Do not count the time in which the master itself stood still and received nothing."""
        self._ends = deque((at + stood_still_s, end) for at, end in self._ends)
        for slave in self._slaves.values():
            slave.caught_up_at = min(slave.caught_up_at + stood_still_s, now)
            slave.joins_at = min(slave.joins_at + stood_still_s, now)

    def _judge(self, slave: _Slave, end_offset: int, now: float) -> None:
        """Decide whether a slave is in sync."""
        if slave.has >= end_offset:
            slave.caught_up_at = now
        else:
            self._look_back(slave)
        is_near = end_offset - slave.has < self._rules.max_gap_bytes
        is_in_sync = is_near and now - slave.caught_up_at <= self._rules.max_behind_s
        if slave.is_in_sync and not is_in_sync:
            slave.joins_from, slave.joins_at = end_offset, now
        is_in_sync = is_in_sync and (slave.is_in_sync or slave.has >= slave.joins_from)
        slave.is_in_sync = is_in_sync and not slave.is_learner

    def _look_back(self, slave: _Slave) -> None:
        """Find the last time at which the log ended no later than the slave's copy does now."""
        if not slave.is_in_sync and slave.has >= slave.joins_from:
            slave.caught_up_at = max(slave.caught_up_at, slave.joins_at)
        if slave.is_in_sync or slave.has >= slave.joins_from:
            for at, end in reversed(self._ends):
                if end <= slave.has:
                    slave.caught_up_at = max(slave.caught_up_at, at)
                    break

    # Output

    def offsets(self) -> list[int]:
        """Return what each slave has acknowledged, the highest first."""
        return sorted((slave.has for slave in self._slaves.values()), reverse=True)

    def in_sync_slaves(self) -> frozenset[Hashable]:
        """Return the slaves in sync, without the master."""
        return frozenset(identity for identity, slave in self._slaves.items() if slave.is_in_sync)

    def in_sync(self) -> frozenset[int]:
        """Return the brokerIds of the slaves in sync by the master's own measure, without the master."""
        slaves = self._slaves.values()
        return frozenset(slave.broker_id for slave in slaves if slave.is_in_sync and slave.broker_id is not None)

    def behind_s(self, identity: Hashable, end_offset: int, now: float) -> float | None:
        """Return for how many seconds a slave has lagged; None if it never had everything or is not connected."""
        slave = self._slaves.get(identity)
        if slave is None:
            return None
        if slave.has >= end_offset:
            return 0.0
        self._look_back(slave)
        return None if slave.caught_up_at == _NEVER else now - slave.caught_up_at

    def required(self) -> int:
        """Return how many replicas, with the master, must have a message before it is acknowledged.

        At least two: in RocketMQ 5.3.3 inSyncReplicas = 1, the default, makes SYNC_MASTER wait for no slave.  With
        enableAutoInSyncReplicas it is the number in sync, but at least minInSyncReplicas.  With allAckInSyncStateSet it
        is every replica in sync, but never fewer than without it.  In controller mode allAckInSyncStateSet is all of
        the controllers' set, where inSyncReplicas = 1 counts as 1: a master that is alone in it may acknowledge.
        """
        if self._needs_all:
            return max(1 + len(self._may_lead), self._min_in_set())
        return self._required(sum(self._counts(slave) for slave in self._slaves.values()))

    @property
    def _needs_all(self) -> bool:
        """Whether, in controller mode, a message needs all replicas that may be elected."""
        return self._only is not None and (self._rules.all_in_sync or not self._agreed)

    def _min_in_set(self) -> int:
        rules = self._rules
        return max(rules.min_in_sync_replicas, 1 if rules.auto_in_sync_replicas else rules.in_sync_replicas)

    def _counts(self, slave: _Slave) -> bool:
        return slave.is_in_sync and (self._only is None or slave.broker_id in self._only)

    def _required(self, slaves_in_sync: int) -> int:
        rules = self._rules
        required = max(2, rules.in_sync_replicas)
        if rules.all_in_sync:
            required = max(required, 1 + slaves_in_sync)
        if rules.auto_in_sync_replicas:
            required = max(rules.min_in_sync_replicas, min(required, 1 + slaves_in_sync))
        return required if self._only is None else max(required, self._agreed)

    def progress(self) -> ReplicationProgress:
        """Return how far the log is replicated; only slaves in sync count, in controller mode only those of the set."""
        if self._only is not None:
            return self._progress_in_set()
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
        is_refusing = 1 + count < self._rules.min_in_sync_replicas
        limit: int | None
        if is_refusing:
            limit = None
        elif not count:
            limit = NO_LIMIT
        else:
            # With fewer than wanted: what all of them have.
            limit = offsets[min(wanted, count) - 1]
        return ReplicationProgress(limit, acknowledged, is_enough, is_refusing)

    def _progress_in_set(self) -> ReplicationProgress:
        """Return how far the log is replicated among the replicas that controllers may elect.

        Consumers see what every replica in the set has, or as many as must have an acknowledged message: an election
        loses neither.
        """
        of_all = self._of_all()
        if self._needs_all:
            # A member that is not in sync is taken out soon, so senders wait.
            is_enough = 1 + len(self._may_lead) >= self._min_in_set()
            acknowledged, limit = of_all if is_enough else -1, of_all
        else:
            offsets = sorted((slave.has for slave in self._slaves.values() if self._counts(slave)), reverse=True)
            wanted = self._required(len(offsets)) - 1
            is_enough = len(offsets) >= wanted
            on_wanted = offsets[wanted - 1] if wanted and is_enough else -1
            acknowledged, limit = on_wanted if wanted else NO_LIMIT, max(on_wanted, of_all)
        is_refusing = self._is_refusing_in_set()
        return ReplicationProgress(None if is_refusing or limit < 0 else limit, acknowledged, is_enough, is_refusing)

    def _is_refusing_in_set(self) -> bool:
        min_count = self._rules.min_in_sync_replicas
        # The master itself always counts: with the default nothing is to be looked at, for each acknowledgement.
        return min_count > 1 and 1 + sum(self._counts(slave) for slave in self._slaves.values()) < min_count

    def _of_all(self) -> int:
        """Return what all slaves that may lead have: `NO_LIMIT` if there is none, -1 if one of them is not in sync."""
        has = {slave.broker_id: slave.has for slave in self._slaves.values() if slave.is_in_sync}
        return min((has.get(broker_id, -1) for broker_id in self._may_lead), default=NO_LIMIT)
