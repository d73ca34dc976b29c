"""The sync-state set alone: who counts, what is asked, and what an unknown answer means."""

from hypothesis import given
from hypothesis import strategies as st

from broker.controller.sync_set import Counting, SyncSet, copies_needed


def ids(*broker_ids: int) -> frozenset[int]:
    return frozenset(broker_ids)


def test_a_slave_in_sync_is_added_at_once_and_taken_out_when_the_master_looks() -> None:
    one = SyncSet(1, ids(1, 2), 5)
    assert one.wanted(ids(2), may_shrink=True) is None
    assert one.wanted(ids(2, 3), may_shrink=False) == ids(1, 2, 3)
    assert one.wanted(ids(), may_shrink=False) is None
    assert one.wanted(ids(3), may_shrink=False) == ids(1, 2, 3)
    assert one.wanted(ids(3), may_shrink=True) == ids(1, 3)


def test_while_a_change_is_open_the_members_of_both_sets_count() -> None:
    one = SyncSet(1, ids(1, 2, 3), 5)
    assert one.counting == Counting(ids(2, 3), ids(2, 3))
    assert one.ask(ids(1, 2)) == Counting(ids(2), ids(2, 3))
    assert one.ask(ids(1, 2, 3, 4)) == Counting(ids(2), ids(2, 3, 4))
    # The answer to the first is not known, so it is asked for again.
    assert one.wanted(ids(2, 3), may_shrink=True) == ids(1, 2, 3, 4)
    assert not one.learn(ids(1, 4), 5)
    assert one.learn(ids(1, 2), 6)
    assert one.counting == Counting(ids(2), ids(2))
    assert not one.is_asked(ids(1, 2))


def test_a_member_that_rocketmqs_controllers_forget_leaves_without_another_epoch() -> None:
    one = SyncSet(1, ids(1, 2, 3), 5)
    one.ask(ids(1, 2))
    one.ask(ids(1, 2, 4))
    assert one.learn(ids(1, 2), 5)
    assert one.epoch == 5
    # The other change may still be decided.
    assert one.counting == Counting(ids(2), ids(2, 4))
    assert not one.learn(ids(1, 2), 5)
    assert not one.learn(ids(1, 2, 3), 5)
    assert not one.learn(ids(1), 4)


def test_a_refused_change_leaves_the_decided_set() -> None:
    one = SyncSet(1, ids(1, 2), 5)
    one.ask(ids(1, 2, 3))
    one.withdraw(ids(1, 2, 3))
    assert one.counting == Counting(ids(2), ids(2))


@given(st.integers(0, 5), st.sets(st.integers(2, 6)))
def test_as_many_copies_as_an_election_can_see(acks: int, slaves: set[int]) -> None:
    members = frozenset(slaves | {1})
    needed = copies_needed(members, acks)
    assert 1 <= needed <= len(members)
    # With so many copies, any n - k + 1 members include one.
    k = len(members) if acks == 0 else acks
    answers = max(1, len(members) - k + 1)
    if k > 1 or acks == 0:
        assert answers + needed > len(members)
