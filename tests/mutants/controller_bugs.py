"""Bugs of the controllers: rules of elections, of sync-state sets and of liveness; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_DECISIONS: Final = ("tests/controller/state/test_decisions.py",)
_FAILOVER: Final = ("tests/controller/test_failover.py",)
_ELECTIONS: Final = ("tests/controller/test_elections.py",)
_LEASES: Final = ("tests/controller/test_leases.py",)
_SYNC_SET: Final = ("tests/broker/controller/test_sync_set.py",)
_LEADERSHIP: Final = ("tests/broker/controller/test_leadership.py",)
_MEMBERSHIP: Final = ("tests/broker/controller/test_membership.py",)
# Two seeds of whole brokers under controllers.
_SIMULATION: Final = ("tests/sim/failover/test_failover.py::test_seeds_that_found_planted_bugs",)
_BROKERS: Final = ("tests/controller/processor/test_brokers.py",)

CONTROLLER_MUTANTS: Final = (
    Mutant(
        "unclean replica preferred",
        "controller/state/election.py",
        "    for candidates in (in_sync, others):\n",
        "    for candidates in (others, in_sync):\n",
        "messages are lost although a replica that has them lives",
        _DECISIONS,
    ),
    Mutant(
        "unclean election always allowed",
        "controller/state/decisions.py",
        "    others = before.broker_ids if asked.allows_unclean else ()\n",
        "    others = before.broker_ids\n",
        "messages are lost without the operator's leave",
        _DECISIONS,
    ),
    Mutant(
        "master epoch not compared",
        "controller/state/decisions.py",
        "    if before.master_epoch != asked.master_epoch:\n",
        "    if before.master_epoch < asked.master_epoch:\n",
        "a master of an earlier epoch changes the sync-state set of its successor",
        _DECISIONS,
    ),
    Mutant(
        "sync-state set epoch not compared",
        "controller/state/decisions.py",
        "    if before.sync_state_set_epoch != asked.sync_state_set_epoch:\n",
        "    if False:\n",
        "a late report puts a replica back that has fallen behind",
        _DECISIONS,
    ),
    Mutant(
        "sync-state set forgotten with the master",
        "controller/state/decisions.py",
        "    after = msgspec.structs.replace(before, master_id=None, master_epoch=before.master_epoch + 1)\n",
        "    after = msgspec.structs.replace(\n"
        "        before, master_id=None, master_epoch=before.master_epoch + 1, sync_state_set=()\n"
        "    )\n",
        "after the loss of all replicas in sync none of them may lead again",
        _DECISIONS,
    ),
    Mutant(
        "broker id given to a second broker",
        "controller/state/decisions.py",
        "        if held.check_code == asked.check_code:\n",
        "        if held.check_code != asked.check_code:\n",
        "two brokers of a group have one id",
        _DECISIONS,
    ),
    Mutant(
        "silent master taken for dead at once",
        "controller/live_brokers.py",
        "        return key not in self._heard and now_ms - self._started_ms <= limit_ms\n",
        "        return False\n",
        "a controller that restarts replaces masters that live",
        _FAILOVER,
    ),
    Mutant(
        "new leader waits for its scan",
        "controller/server.py",
        "        if is_leader and (not self._was_leader or now_ms >= self._next_master_scan_ms):\n",
        "        if is_leader and now_ms >= self._next_master_scan_ms:\n",
        "a master that dies with the leader of the controllers is replaced seconds later",
        _FAILOVER,
    ),
    Mutant(
        "read without a majority",
        "controller/replica_service.py",
        "        await self._confirm()\n        return self.known_group(name)\n",
        "        return self.known_group(name)\n",
        "a controller that no longer leads shows an earlier master",
        _BROKERS,
    ),
    Mutant(
        "closed connection of a broker's past counts",
        "controller/live_brokers.py",
        "        self._seen[heartbeat.key] = _Seen(heartbeat, now_ms)\n",
        "        self._seen.setdefault(heartbeat.key, _Seen(heartbeat, now_ms)).at_ms = now_ms\n",
        "a master that connects again is replaced when its old connection ends",
        _FAILOVER,
    ),
    Mutant(
        "lease of the old master ignored",
        "controller/elections.py",
        "            if wait_ms > 0:\n",
        "            if False:\n",
        "another master is elected while the old one may acknowledge",
        _ELECTIONS,
    ),
    Mutant(
        "lease counted without the drift of clocks",
        "controller/leases.py",
        "    return lease_ms + lease_ms // _DRIFT_PARTS + _ROUNDING_MS\n",
        "    return lease_ms\n",
        "a master whose clock is slow acknowledges after the election of another one",
        _LEASES,
    ),
    Mutant(
        "leases of an earlier leader ignored",
        "controller/leases.py",
        "        others_until_ms = self._since_ms + _with_drift(group.lease_ms)\n",
        "        others_until_ms = 0\n",
        "a new leader of the controllers elects while a lease of the old one runs",
        _LEASES,
    ),
    Mutant(
        "lease granted while an election runs",
        "controller/replica_service.py",
        "            and group.name not in self.electing\n",
        "            and True\n",
        "the old master acknowledges after its replicas were asked for their logs",
        _ELECTIONS,
    ),
    Mutant(
        "terms of any epoch accepted",
        "controller/state/decisions.py",
        "    if asked.master_epoch != before.master_epoch:\n",
        "    if False:\n",
        "a master of an earlier epoch says what those of the current one promise",
        _DECISIONS,
    ),
    Mutant(
        "too few answers",
        "controller/state/decisions.py",
        "    if len(in_sync) < before.answers_needed:\n",
        "    if not in_sync:\n",
        "a replica without an acknowledged message leads",
        _DECISIONS,
    ),
    Mutant(
        "answers of another epoch count",
        "controller/state/decisions.py",
        "    if then != (before.master_epoch, before.sync_state_set_epoch):\n",
        "    if False:\n",
        "an election counts replicas that are not in sync any more",
        _DECISIONS,
    ),
    Mutant(
        "heartbeats elect although there are leases",
        "controller/state/decisions.py",
        "    if not asked.is_exact:\n",
        "    if False:\n",
        "a replica leads by an old offset while another one has more",
        _DECISIONS,
    ),
    Mutant(
        "unclean exact election preferred",
        "controller/state/decisions.py",
        "        return election.best(asked.live, before.master_id) if asked.allows_unclean else None\n"
        "    if asked.is_designated:\n",
        "        return election.best(asked.live, before.master_id) if asked.allows_unclean else None\n"
        "    if asked.allows_unclean:\n"
        "        return election.best(asked.live, before.master_id)\n"
        "    if asked.is_designated:\n",
        "messages are lost although enough replicas that have them live",
        _DECISIONS,
    ),
    Mutant(
        "master that started again goes on in its epoch",
        "controller/state/decisions.py",
        "    is_led = not asked.has_resigned and any(one.broker_id == before.master_id for one in in_sync)\n",
        "    is_led = any(one.broker_id == before.master_id for one in in_sync)\n",
        "a master that lost its tail with the power keeps leading, and the tail is lost everywhere",
        _DECISIONS,
    ),
    Mutant(
        "lease counted from its answer",
        "broker/controller/heartbeats.py",
        "        self._answered(header, sent_s, answer)\n",
        "        self._answered(header, self._now_s() + 60, answer)\n",
        "a master acknowledges after the controllers' count of its lease has ended",
        _MEMBERSHIP,
    ),
    Mutant(
        "master that starts again leads in its old epoch",
        "broker/controller/membership.py",
        "        return self._has_leases is not False and tenure.master_epoch <= (self._first_epoch or 0)\n",
        "        return False\n",
        "a master that lost the end of its log with the power writes other messages in its place",
        _MEMBERSHIP,
    ),
    Mutant(
        "sync-state set shrunk before the controllers have decided it",
        "broker/controller/sync_set.py",
        "        both, either = self._decided.intersection(*self._open), self._decided.union(*self._open)\n",
        "        both = either = self._open[-1] if self._open else self._decided\n",
        "messages are acknowledged that a member of the set lacks, which may be elected",
        _SYNC_SET,
    ),
    Mutant(
        "sync-state set shrunk without a majority of the controllers, in simulation",
        "broker/controller/sync_set.py",
        "        both, either = self._decided.intersection(*self._open), self._decided.union(*self._open)\n",
        "        both = either = self._open[-1] if self._open else self._decided\n",
        "a replica leads that lacks acknowledged messages",
        _SIMULATION,
    ),
    Mutant(
        "end of the lease ignored, in simulation",
        "ha/lease.py",
        "        return now_s < self._until_s\n",
        "        return self._until_s > _NEVER\n",
        "a master acknowledges after another one was elected",
        _SIMULATION,
    ),
    Mutant(
        "sync-state set changed before its members have the messages",
        "broker/controller/leadership.py",
        "            if not await self._settled(wanted, self._told):\n",
        "            if False:\n",
        "a new set has too few copies of what is acknowledged, and one of the others is elected",
        _LEADERSHIP,
    ),
    Mutant(
        "open change of the sync-state set forgotten",
        "broker/controller/sync_set.py",
        "        return self._open[-1] if self._open else None\n",
        "        return None\n",
        "a change whose answer was lost is never decided",
        _SYNC_SET,
    ),
    Mutant(
        "fewer acknowledgements before the controllers know",
        "ha/replicas.py",
        "        return required if self._only is None else max(required, self._agreed)\n",
        "        return required\n",
        "an election counts on copies that the master did not wait for",
        ("tests/ha/test_replicas_in_set.py",),
    ),
    Mutant(
        "more acknowledgements told before older messages have them",
        "broker/controller/leadership.py",
        "        if rule != self._told and not self._is_raised(rule):\n",
        "        if rule != self._told:\n",
        "an election asks too few replicas for an older message",
        _LEADERSHIP,
    ),
)
