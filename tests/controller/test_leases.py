"""The table of leases alone: until when no other master may be elected."""

from controller.leases import Leases
from controller.state.group import Group

GROUP = Group(
    cluster="c", name="a", master_id=1, master_epoch=3, sync_state_set=(1, 2), required_acks=2, lease_ms=1_000
)
# A clock that runs apart by a fiftieth, and 5 ms for rounding.
_WHOLE_MS = 1_025


def leading(since_ms: int = 0) -> Leases:
    leases = Leases()
    leases.lead(7, since_ms)
    return leases


def test_a_lease_counts_from_the_arrival_of_its_heartbeat_and_longer_than_the_master_counts_it() -> None:
    leases = leading(-10_000)
    leases.granted("a", 3, 500, 1_000)
    assert leases.wait_ms(GROUP, 500) == _WHOLE_MS
    assert leases.wait_ms(GROUP, 500 + _WHOLE_MS - 1) == 1
    assert leases.wait_ms(GROUP, 500 + _WHOLE_MS) == 0
    # A late heartbeat with a shorter lease takes nothing back.
    leases.granted("a", 3, 600, 100)
    assert leases.wait_ms(GROUP, 600) == _WHOLE_MS - 100


def test_a_controller_that_begins_to_lead_waits_for_one_whole_lease() -> None:
    leases = leading(2_000)
    assert leases.wait_ms(GROUP, 2_000) == _WHOLE_MS
    leases.lead(7, 2_500)
    assert leases.wait_ms(GROUP, 2_500) == _WHOLE_MS - 500
    # Another one led in between.
    leases.lead(9, 9_000)
    assert leases.wait_ms(GROUP, 9_000) == _WHOLE_MS


def test_a_lease_that_was_given_up_is_over_at_once_and_for_good() -> None:
    leases = leading()
    leases.granted("a", 3, 0, 1_000)
    leases.give_up("a", 2)  # of an earlier epoch: late
    assert leases.wait_ms(GROUP, 0) > 0
    leases.give_up("a", 3)
    assert leases.wait_ms(GROUP, 0) == 0
    assert leases.is_given_up("a", 3)
    assert not leases.is_given_up("a", 4)


def test_nobody_waits_for_a_master_without_leases() -> None:
    leases = leading()
    assert leases.wait_ms(Group(cluster="c", name="a", master_id=1, master_epoch=3), 0) == 0


def test_the_groups_of_another_leader_are_watched() -> None:
    leases = leading()
    leases.granted("a", 3, 0, 1_000)
    for name in ("a", "b"):
        leases.watch(name)
    assert sorted(leases.names) == ["a", "b"]
    assert leases.wait_ms(GROUP, 0) == _WHOLE_MS
    leases.forget("a")
    assert leases.names == ["b"]
