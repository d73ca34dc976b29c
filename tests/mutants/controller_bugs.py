"""Bugs of the controllers: rules of elections, of sync-state sets and of liveness; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_DECISIONS: Final = ("tests/controller/state/test_decisions.py",)
_FAILOVER: Final = ("tests/controller/test_failover.py",)
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
        "        return key not in self._heard and now_ms - self._started_ms <= DEFAULT_TIMEOUT_MS\n",
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
        "        await self._confirm()\n        return self._machine.group(name)\n",
        "        return self._machine.group(name)\n",
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
)
