"""Acknowledgements of several slaves, and which of them are in sync."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.replicas import NO_LIMIT, ReplicaRules, Replicas, ReplicationProgress


def replicas_of(*offsets: int, end: int = 1000, now: float = 0.0, **rules: int) -> Replicas:
    """Return slaves that each had the whole log, at `now`, when it ended at their offset."""
    replicas = Replicas(ReplicaRules(**({"max_gap_bytes": 1000, "max_behind_s": 15.0} | rules)))  # type: ignore[arg-type]
    for number, offset in enumerate(offsets):
        replicas.acknowledged(f"slave {number}", 1, offset, offset, now)
    replicas.check(end, now)
    return replicas


def test_what_the_required_replicas_have_is_acknowledged_and_seen() -> None:
    assert replicas_of(850, 900, 10).progress() == ReplicationProgress(900, 900, True, False)
    assert replicas_of(850, 900, 10, in_sync_replicas=3).progress() == ReplicationProgress(850, 850, True, False)
    assert replicas_of(850, 900, 10, in_sync_replicas=4).progress() == ReplicationProgress(10, 10, True, False)


def test_with_too_few_in_sync_nothing_is_acknowledged_and_consumers_see_what_those_have() -> None:
    assert replicas_of(850, 900, in_sync_replicas=5).progress() == ReplicationProgress(850, -1, False, False)
    assert replicas_of().progress() == ReplicationProgress(NO_LIMIT, -1, False, False)


def test_below_the_least_number_nothing_is_taken_and_nothing_more_is_seen() -> None:
    assert replicas_of(min_in_sync_replicas=2).progress() == ReplicationProgress(None, -1, False, True)
    assert replicas_of(900, min_in_sync_replicas=2).progress() == ReplicationProgress(900, 900, True, False)
    assert replicas_of(900, min_in_sync_replicas=3).progress() == ReplicationProgress(None, 900, True, True)


def test_a_slave_that_is_connected_twice_counts_once() -> None:
    replicas = replicas_of(800, in_sync_replicas=3)
    replicas.acknowledged("slave 0", 2, 900, 1000, 0.0)
    assert replicas.offsets() == [900]
    assert replicas.progress() == ReplicationProgress(900, -1, False, False)
    replicas.left("slave 0", 2)
    assert replicas.offsets() == [800]
    replicas.left("slave 0", 1)
    replicas.left("slave 0", 1)
    assert replicas.offsets() == []


def test_a_connection_that_lags_does_not_inherit_that_its_slave_was_in_sync() -> None:
    replicas = replicas_of(1000)
    replicas.acknowledged("slave 0", 2, 900, 1000, 0.0)
    replicas.left("slave 0", 1)
    assert (replicas.offsets(), replicas.in_sync_slaves()) == ([900], frozenset())
    replicas.acknowledged("slave 0", 2, 999, 1010, 0.0)
    assert replicas.in_sync_slaves() == frozenset()
    replicas.acknowledged("slave 0", 2, 1000, 1010, 0.0)
    assert replicas.in_sync_slaves() == {"slave 0"}


def test_a_slave_is_in_sync_once_it_has_what_was_there_when_it_came() -> None:
    replicas = Replicas(ReplicaRules())
    replicas.acknowledged("late", 1, 10, 500, 0.0)
    assert replicas.in_sync_slaves() == frozenset()
    replicas.acknowledged("late", 1, 499, 700, 1.0)
    assert replicas.in_sync_slaves() == frozenset()
    assert replicas.behind_s("late", 700, 1.0) is None
    replicas.acknowledged("late", 1, 500, 800, 2.0)
    assert replicas.in_sync_slaves() == {"late"}
    # The end of the log when the slave connected, at time 0.
    assert replicas.behind_s("late", 800, 2.0) == 2.0
    replicas.check(800, 2.0)
    replicas.acknowledged("late", 1, 800, 900, 3.0)
    assert replicas.behind_s("late", 900, 3.0) == 1.0
    assert replicas.behind_s("late", 800, 3.0) == 0.0
    assert replicas.behind_s("nobody", 800, 3.0) is None


def test_a_slave_that_lacks_too_much_is_not_in_sync() -> None:
    replicas = replicas_of(1000, 901, 900, max_gap_bytes=100)
    assert replicas.in_sync_slaves() == {"slave 0", "slave 1"}
    replicas.check(1200, 0.0)
    assert replicas.in_sync_slaves() == frozenset()


def test_a_slave_that_stands_still_leaves_and_comes_back_when_it_has_caught_up() -> None:
    replicas = replicas_of(1000)
    for now in range(1, 60):
        # Nothing to send: a silent slave stays in sync.
        replicas.check(1000, now)
    assert replicas.in_sync_slaves() == {"slave 0"}
    for now in range(60, 75):
        replicas.check(1999, now)
        assert replicas.in_sync_slaves() == {"slave 0"}
    replicas.check(1999, 75)
    assert replicas.in_sync_slaves() == frozenset()
    # Its first report does not make it newer.
    replicas.acknowledged("slave 0", 1, 1500, 1999, 76.0)
    assert replicas.in_sync_slaves() == frozenset()
    replicas.acknowledged("slave 0", 1, 1999, 1999, 77.0)
    assert replicas.in_sync_slaves() == {"slave 0"}


def test_a_slave_that_is_always_a_little_behind_stays() -> None:
    replicas = replicas_of(1000)
    end = 1000
    for turn in range(1, 2000):
        end += 10
        replicas.acknowledged("slave 0", 1, end - 10, end, turn * 0.05)
        if not turn % 20:
            replicas.check(end, turn * 0.05)
        assert replicas.in_sync_slaves() == {"slave 0"}


def test_a_slave_that_falls_back_further_and_further_leaves() -> None:
    replicas = replicas_of(1000, max_gap_bytes=1 << 40)
    for second in range(1, 60):
        # It receives half of what is appended.
        replicas.acknowledged("slave 0", 1, 1000 + 50 * second, 1000 + 100 * second, second)
        replicas.check(1000 + 100 * second, second)
        assert (second <= 30) == bool(replicas.in_sync_slaves()), second


def test_a_master_that_stood_still_itself_blames_nobody() -> None:
    replicas = replicas_of(1000)
    replicas.check(1100, 1.0)
    replicas.check(1100, 61.0)
    assert replicas.in_sync_slaves() == {"slave 0"}
    for now in range(62, 78):
        replicas.check(1100, now)
    assert replicas.in_sync_slaves() == frozenset()


def test_what_is_flushed_counts_where_it_is_asked_for_and_said() -> None:
    for strict, flushed, expected in [(False, 600, 900), (True, 600, 600), (True, None, 900), (True, 950, 900)]:
        replicas = Replicas(ReplicaRules(counts_flushed=strict))
        replicas.acknowledged("slave", 1, 900, 500, 0.0, flushed)
        assert replicas.offsets() == [expected]


@pytest.mark.parametrize(
    ("rules", "slaves", "expected"),
    [
        ({}, 0, 2),
        ({"in_sync_replicas": 3}, 0, 3),
        ({"in_sync_replicas": 3, "auto_in_sync_replicas": True}, 0, 1),
        ({"in_sync_replicas": 3, "auto_in_sync_replicas": True}, 1, 2),
        ({"in_sync_replicas": 3, "auto_in_sync_replicas": True}, 5, 3),
        ({"in_sync_replicas": 3, "min_in_sync_replicas": 2, "auto_in_sync_replicas": True}, 0, 2),
        ({"all_in_sync": True}, 0, 2),
        ({"all_in_sync": True}, 3, 4),
        ({"all_in_sync": True, "auto_in_sync_replicas": True}, 0, 1),
    ],
)
def test_how_many_must_have_a_message(rules: dict[str, int], slaves: int, expected: int) -> None:
    replicas = replicas_of(*[1000] * slaves, **rules)
    assert replicas.required() == expected
    assert replicas.progress().is_enough == (slaves + 1 >= expected)


def test_alone_by_configuration_the_master_acknowledges_everything() -> None:
    assert replicas_of(auto_in_sync_replicas=True).progress() == ReplicationProgress(NO_LIMIT, NO_LIMIT, True, False)


# At all times an offset counts only if enough different slaves have reported it.

ACT = st.one_of(
    st.tuples(st.just("ack"), st.integers(0, 3), st.integers(0, 2), st.integers(0, 400)),
    st.tuples(st.just("left"), st.integers(0, 3), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("grow"), st.integers(0, 300), st.just(0), st.just(0)),
    st.tuples(st.just("time"), st.integers(0, 4), st.just(0), st.just(0)),
)
RULES = st.builds(
    ReplicaRules,
    max_gap_bytes=st.sampled_from([100, 1000]),
    max_behind_s=st.just(15.0),
    in_sync_replicas=st.integers(1, 4),
    min_in_sync_replicas=st.integers(1, 3),
    auto_in_sync_replicas=st.booleans(),
    all_in_sync=st.booleans(),
)


class History:
    """All reports in their order, and a slow computation of what follows from them."""

    def __init__(self, rules: ReplicaRules) -> None:
        self.rules = rules
        self.replicas = Replicas(rules)
        self.end, self.now = 0, 0.0
        self.ends = [(0.0, 0)]
        self.said: dict[tuple[int, int], int] = {}
        self.came: dict[int, float] = {}

    def ack(self, slave: int, connection: int, short: int) -> None:
        offset = max(0, self.end - short, self.said.get((slave, connection), 0))
        self.came.setdefault(slave, self.now)
        self.said[slave, connection] = offset
        self.replicas.acknowledged(slave, connection, offset, self.end, self.now)

    def left(self, slave: int, connection: int, _: int) -> None:
        self.said.pop((slave, connection), None)
        if not any(other == slave for other, _ in self.said):
            self.came.pop(slave, None)
        self.replicas.left(slave, connection)

    def grow(self, size: int, *_: int) -> None:
        self.end += size
        self.ends.append((self.now, self.end))

    def time(self, seconds: int, *_: int) -> None:
        self.now += seconds
        self.replicas.check(self.end, self.now)

    def has(self) -> dict[int, int]:
        return {slave: max(offset for (other, _), offset in self.said.items() if other == slave) for slave in self.came}

    def could_be_in_sync(self, slave: int, has: int) -> bool:
        """Return whether the slave had the whole log recently, at some time after it connected."""
        since = max(self.came[slave], self.now - self.rules.max_behind_s)
        # The log held at least this at that time.
        held = max((end for at, end in self.ends if at < since), default=0)
        return has >= held


@given(RULES, st.lists(ACT, max_size=60))
def test_nothing_counts_that_not_enough_different_slaves_have(
    rules: ReplicaRules, acts: list[tuple[str, int, int, int]]
) -> None:
    history = History(rules)
    for name, *numbers in acts:
        act: Callable[..., None] = getattr(history, name)
        act(*numbers)
        has, replicas = history.has(), history.replicas
        assert replicas.offsets() == sorted(has.values(), reverse=True)
        in_sync = replicas.in_sync_slaves()
        assert in_sync <= has.keys()
        progress, required = replicas.progress(), replicas.required()
        if progress.acknowledged >= 0:
            assert 1 + sum(has[slave] >= progress.acknowledged for slave in in_sync) >= required  # type: ignore[index]
        assert progress.is_enough == (1 + len(in_sync) >= required)
        assert progress.is_refusing == (1 + len(in_sync) < rules.min_in_sync_replicas)
        assert (progress.limit is None) == progress.is_refusing
        if progress.limit is not None:
            # Consumers see what is acknowledged; with too few in sync, what all of those have.
            lagging = [slave for slave in in_sync if has[slave] < progress.limit]  # type: ignore[index]
            assert not in_sync or len(in_sync) - len(lagging) >= min(required - 1, len(in_sync))
            if progress.is_enough:
                assert progress.limit == progress.acknowledged
        for slave in in_sync:
            assert history.could_be_in_sync(slave, has[slave])  # type: ignore[index, arg-type]
