"""Acknowledgements in controller mode: what counts, what consumers see, and that no election loses either."""

import random
from collections.abc import Set
from itertools import combinations

import pytest

from ha.replicas import NO_LIMIT, ReplicaRules, Replicas, ReplicationProgress
from tests.tiers import seeds

END = 1000


def replicas_of(
    slaves: dict[int, int], only: set[int], may_lead: set[int] | None = None, out: Set[int] = frozenset(), **rules: int
) -> Replicas:
    """Return slaves by brokerId with their offsets; those in `out` are not in sync."""
    replicas = Replicas(ReplicaRules(**({"max_gap_bytes": 10_000, "max_behind_s": 15.0} | rules)))  # type: ignore[arg-type]
    for broker_id, offset in slaves.items():
        joins_at = END + 1 if broker_id in out else offset
        replicas.acknowledged(("C", "a", broker_id), broker_id, offset, joins_at, 0.0, broker_id=broker_id)
    replicas.count_only(frozenset(only), None if may_lead is None else frozenset(may_lead))
    replicas.check(END, 0.0)
    return replicas


def test_only_slaves_of_the_controllers_set_count() -> None:
    slaves = {2: 900, 3: 700, 4: 500}
    assert replicas_of(slaves, {3, 4}).progress() == ReplicationProgress(700, 700, True, False)
    assert replicas_of(slaves, {4}).progress() == ReplicationProgress(500, 500, True, False)
    assert replicas_of(slaves, {2, 3, 4}, in_sync_replicas=3).progress() == ReplicationProgress(700, 700, True, False)
    assert replicas_of(slaves, {3, 4}).in_sync() == {2, 3, 4}, "those that may join"


def test_no_fewer_replicas_suffice_than_the_controllers_know() -> None:
    replicas = replicas_of({2: 900, 3: 700}, {2, 3}, in_sync_replicas=2)
    assert replicas.progress() == ReplicationProgress(900, 900, True, False)
    replicas.require(3)
    assert replicas.progress() == ReplicationProgress(700, 700, True, False)
    replicas.require(0)  # all of the set, although one of its members is not here
    replicas.count_only(frozenset({2, 3}), frozenset({2, 3, 4}))
    assert replicas.progress().acknowledged == -1
    assert replicas.holding(800) == {2}


def test_a_slave_of_the_set_that_lags_does_not_count() -> None:
    assert replicas_of({2: 900, 3: 700}, {2, 3}, out={2}).progress() == ReplicationProgress(700, 700, True, False)


def test_a_slave_without_a_broker_id_does_not_count() -> None:
    replicas = replicas_of({}, {2})
    replicas.acknowledged("127.0.0.1", 1, END, END, 0.0)
    assert replicas.in_sync_slaves() == {"127.0.0.1"}
    assert replicas.in_sync() == frozenset()
    assert replicas.progress() == ReplicationProgress(None, -1, False, False)


def test_a_learner_follows_and_never_counts() -> None:
    for only in (None, frozenset({2})):
        replicas = Replicas(ReplicaRules())
        replicas.acknowledged("2", 1, END, END, 0.0, broker_id=2, is_learner=True)
        if only is not None:
            replicas.count_only(only)
        replicas.check(END, 0.0)
        assert (replicas.in_sync(), replicas.in_sync_slaves()) == (frozenset(), frozenset())
        assert replicas.offsets() == [END]
        assert replicas.progress().acknowledged == -1


def test_consumers_see_no_more_while_a_slave_of_the_set_is_gone() -> None:
    """The controllers may still elect it."""
    assert replicas_of({}, {2}).progress() == ReplicationProgress(None, -1, False, False)
    assert replicas_of({}, set()).progress() == ReplicationProgress(NO_LIMIT, -1, False, False)


def test_a_master_alone_in_the_set_acknowledges_with_all_ack() -> None:
    assert replicas_of({}, set(), all_in_sync=True).progress() == ReplicationProgress(NO_LIMIT, NO_LIMIT, True, False)
    found = replicas_of({}, set(), all_in_sync=True, min_in_sync_replicas=2).progress()
    assert found == ReplicationProgress(None, -1, False, True)
    assert replicas_of({}, set(), all_in_sync=True, in_sync_replicas=2).progress().acknowledged == -1
    found = replicas_of({}, set(), all_in_sync=True, in_sync_replicas=2, auto_in_sync_replicas=True).progress()
    assert found.acknowledged == NO_LIMIT


def test_all_ack_waits_for_every_slave_that_may_lead() -> None:
    slaves = {2: 900, 3: 700}
    assert replicas_of(slaves, {2, 3}, all_in_sync=True).progress() == ReplicationProgress(700, 700, True, False)
    assert replicas_of(slaves, {2, 3}, all_in_sync=True).required() == 3
    # A change of the set is not decided: 3 may be in it.
    found = replicas_of(slaves, {2}, {2, 3}, all_in_sync=True).progress()
    assert found == ReplicationProgress(700, 700, True, False)
    # 3 is gone: senders wait until the controllers have taken it out.
    found = replicas_of({2: 900}, {2}, {2, 3}, all_in_sync=True).progress()
    assert found == ReplicationProgress(None, -1, True, False)
    found = replicas_of(slaves, {2, 3}, out={3}, all_in_sync=True).progress()
    assert found == ReplicationProgress(None, -1, True, False)


@pytest.mark.parametrize("seed", seeds(4))
def test_no_election_loses_what_was_acknowledged_or_seen(seed: int) -> None:
    """Of `n` replicas in the set, the best log of any `n - k + 1` leads; `k` is what the master requires."""
    rng = random.Random(seed)
    elections = acknowledged = 0
    for _ in range(2500):
        ids = range(1, rng.randrange(2, 6))
        slaves = {broker_id: rng.randrange(0, END + 1, 50) for broker_id in ids if rng.random() < 0.9}
        before = {broker_id for broker_id in ids if rng.random() < 0.7}
        after = {broker_id for broker_id in ids if rng.random() < 0.7} if rng.random() < 0.5 else before
        all_ack, wanted = rng.random() < 0.5, rng.randrange(1, 4)
        rules = {"in_sync_replicas": wanted, "all_in_sync": all_ack}
        out = {broker_id for broker_id in slaves if rng.random() < 0.2}
        replicas = replicas_of(slaves, before & after, before | after, out, **rules)
        progress = replicas.progress()
        acked = min(END, progress.acknowledged)
        seen = -1 if progress.limit is None else min(END, progress.limit)
        for members in (before, after):
            logs = [END, *(slaves.get(broker_id, 0) for broker_id in members)]
            k = len(logs) if all_ack else max(2, wanted)
            answers = max(1, len(logs) - k + 1)
            elections += 1
            acknowledged += acked > 0
            for chosen in combinations(logs, answers):
                assert max(chosen) >= acked, (slaves, before, after, rules, progress)
                assert max(chosen) >= seen, (slaves, before, after, rules, progress)
    assert elections == 5000
    assert acknowledged > 1000
