"""Seeds of the simulated cluster that found something, each with what it found."""

import pytest

from tests.sim.cluster.cluster import Cluster
from tests.sim.cluster.group import Group, Node
from tests.sim.cluster.profile import Profile
from tests.tiers import seeds


def profile(**changes: bool | int) -> Profile:
    """One master that waits for one slave, and no faults but those of the test."""
    fields: dict[str, bool | int] = {
        "groups": 1, "slaves": 1, "is_sync_master": True, "is_sync_flush": False, "required": 2, "least": 1,
        "is_plain": False, "segment_bytes": 4096, "fixed_body": False, "faults": 0, "producers": 1,
    }  # fmt: skip
    return Profile(**(fields | changes), seconds=8.0)  # type: ignore[arg-type] # numbers of both kinds


def slave_of(cluster: Cluster) -> tuple[Group, Node]:
    group = cluster.groups[0]
    return group, group.slaves[0]


@pytest.mark.parametrize("seed", seeds(4))
def test_a_connection_that_the_network_forgot_is_made_again(seed: int) -> None:
    """Seeds 38 to 277: the slave asked its master for ever over the connection that had vanished."""
    cluster = Cluster(seed, profile())
    group, slave = slave_of(cluster)
    cluster.scheduler.after(4.0, lambda: cluster.faults.strike("vanish", group, slave))
    outcome = cluster.play()
    assert not outcome.problems, outcome.report()


@pytest.mark.parametrize("seed", seeds(6))
def test_a_tail_that_the_master_lost_is_noticed_where_records_are_of_one_size(seed: int) -> None:
    """Seeds 4, 207, 245: in the plain protocol the slave went on after records that its master did not have."""
    cluster = Cluster(seed, profile(is_plain=True, is_sync_master=False, fixed_body=True))
    group, slave = slave_of(cluster)
    network, master = cluster.network, group.master

    def part() -> None:
        for connection in network.between(master.machine.ip, slave.machine.ip):
            connection.reset()
        cluster.cut_power(group, master)
        cluster.power_on(group, master)

    cluster.scheduler.after(3.0 + seed / 5, part)
    outcome = cluster.play()
    assert not outcome.problems, outcome.report()
