"""What is found of a cluster: whether sends are confirmed, which members are gone."""

from dataclasses import replace

import pytest

from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.cluster_health import UNKNOWN_ID, ClusterHealth, ClusterLook, Seen, judge
from sprocket.remoting.bodies.controller import ReplicaIdentity, ReplicasInfo
from sprocket.remoting.bodies.route import BrokerData, ClusterInfo
from sprocket.remoting.bodies.stats import HAConnectionRuntimeInfo, HARuntimeInfo
from sprocket.remoting.headers.controller import GetMetaDataResponseHeader

NOW_MS = 1_800_000_000_000  # 2027-01-15 08:00 UTC
MINUTE = 60_000
WELL = {"sendStatus": "confirmed", "haInSyncReplicas": "2", "haRequiredReplicas": "2"}
SILENT = AdminError("timeout")
LEADER = GetMetaDataResponseHeader(controller_leader_address="c:1")


def look(**groups: dict[int, str]) -> ClusterLook:
    """Return a cluster whose brokers, by name and id, all answer well."""
    info = ClusterInfo({name: BrokerData("C", name, members) for name, members in groups.items()}, {"C": list(groups)})
    runtime = {address: WELL for members in groups.values() for address in members.values()}
    return ClusterLook(info, dict(runtime), {})


def known(name: str, *addresses: str, alive: int) -> dict[str, ReplicasInfo]:
    """Return what controllers know of a group whose first members are alive."""
    members = [ReplicaIdentity(name, n + 1, address, n < alive) for n, address in enumerate(addresses)]
    return {name: ReplicasInfo(1, addresses[0], 1, 1, members[:alive], members[alive:])}


def texts(health: ClusterHealth) -> list[str]:
    return [one.what for one in health.troubles]


def test_a_whole_cluster_has_no_troubles() -> None:
    health = judge(look(a={0: "h:1", 1: "h:2"}, b={0: "h:3"}), [], NOW_MS)
    assert (health.confirms_sends, health.headline) == (True, "Sends are confirmed by 2 of 2 broker groups.")
    assert health.troubles == ()
    assert [(group.name, group.replicas, group.gone) for group in health.groups] == [("a", 2, ()), ("b", 1, ())]


def test_a_member_that_only_the_controllers_know_is_gone() -> None:
    found = replace(
        look(b={0: "h:1", 2: "h:2"}), controlled=frozenset({"b"}), controllers={"c:1": LEADER},
        replicas=known("b", "h:1", "h:2", "h:3", alive=2),
    )  # fmt: skip
    health = judge(found, [], NOW_MS)
    assert health.confirms_sends
    assert texts(health) == ["b: 1 of 3 replicas gone: h:3 (not registered)"]
    assert "cleanBrokerMetadata" in health.troubles[0].advice
    seen = [Seen("b", 3, "h:3", NOW_MS - 12 * MINUTE), Seen("b", 0, "h:1", NOW_MS)]
    assert texts(judge(found, seen, NOW_MS)) == ["b: 1 of 3 replicas gone since 07:48 UTC: h:3 (not registered)"]
    # They also decide who is no member any more.
    assert texts(judge(found, [Seen("b", 4, "h:4", 1)], NOW_MS)) == ["b: 1 of 3 replicas gone: h:3 (not registered)"]


def test_what_was_seen_is_remembered_without_controllers() -> None:
    found = look(a={0: "h:1"})
    lost = Seen("a", 1, "h:2", NOW_MS - 2 * 24 * 60 * MINUTE)
    assert texts(judge(found, [lost], NOW_MS)) == [
        "a: 1 of 2 replicas gone since 2027-01-13 08:00 UTC: h:2 (not registered)"
    ]
    # A broker that moved is not gone, and one that has no id yet should be there all the same.
    assert judge(found, [Seen("a", 0, "h:0", 1)], NOW_MS).troubles == ()
    assert texts(judge(found, [Seen("a", UNKNOWN_ID, "h:0")], NOW_MS)) == [
        "a: 1 of 2 replicas gone: h:0 (not registered)"
    ]
    # With controllers that do not answer, an election may have given the id of the lost master to another.
    silent = replace(found, controlled=frozenset({"a"}), controllers={"c:1": SILENT})
    assert texts(judge(silent, [Seen("a", 0, "h:0", NOW_MS)], NOW_MS)) == [
        "a: 1 of 2 replicas gone since 08:00 UTC: h:0 (not registered)", "1 of 1 controllers gone: c:1 (timeout)",
        "a: the controllers do not tell which replicas should be there",
    ]  # fmt: skip


def test_a_group_that_vanished_is_the_first_thing_said() -> None:
    health = judge(look(a={0: "h:1"}), [Seen("b", 0, "h:3", NOW_MS)], NOW_MS)
    assert health.headline == "Sends are NOT confirmed by b; they are confirmed by 1 of 2 broker groups."
    assert texts(health) == [
        "b: sends fail: the group has no master", "b: 1 of 1 replica gone since 08:00 UTC: h:3 (not registered)",
    ]  # fmt: skip
    alone = judge(look(), [Seen("b", 0, "h:3", NOW_MS)], NOW_MS)
    assert alone.headline == "Sends are NOT confirmed by b."
    nothing = judge(look(), [], NOW_MS)
    assert not nothing.confirms_sends and "no broker" in nothing.headline


@pytest.mark.parametrize(
    ("figures", "part"),
    [
        (
            WELL | {"sendStatus": "one_copy", "haInSyncReplicas": "1"},
            "SLAVE_NOT_AVAILABLE: the messages are on too few",
        ),
        (WELL | {"sendStatus": "replicas_not_enough", "haInSyncReplicas": "1"}, "(1 in sync, 2 required)"),
        (WELL | {"sendStatus": "no_lease"}, "holds no lease"),
        (WELL | {"sendStatus": "disk_full"}, "disk is full"),
        (WELL | {"sendStatus": "slow_flush"}, "sends are refused: slow_flush"),
        (SILENT, "its master h:1 does not answer"),
    ],
)
def test_sends_that_are_not_confirmed_come_first(figures: dict[str, str] | AdminError, part: str) -> None:
    found = look(a={0: "h:1", 1: "h:2"}, b={0: "h:3"})
    found.runtime["h:1"] = figures
    found.runtime["h:2"] = SILENT
    health = judge(found, [], NOW_MS)
    assert health.headline == "Sends are NOT confirmed by a; they are confirmed by 1 of 2 broker groups."
    assert not health.confirms_sends
    assert health.troubles[0].subject == "sends" and part in health.troubles[0].what
    assert health.troubles[1].what.startswith("a: ") and "h:2 (no answer: timeout)" in health.troubles[1].what
    assert "brokerIP1" in health.troubles[1].advice


def test_a_broker_that_does_not_tell_is_no_trouble() -> None:
    found = look(a={0: "h:1"}, b={0: "h:2"}, c={0: "h:3"})
    found.runtime["h:1"] = {"brokerVersionDesc": "V5_3_3"}
    found.runtime["h:2"] = AdminError("no right", 16)
    health = judge(found, [], NOW_MS)
    assert health.headline == "Sends are confirmed by 1 of 3 broker groups; a, b cannot tell."
    assert (health.confirms_sends, health.troubles) == (True, ())


def test_controllers_and_slaves_in_trouble() -> None:
    behind = HAConnectionRuntimeInfo("h:9", 0, 2048, False)
    found = replace(
        look(a={0: "h:1", 1: "h:2"}),
        replication={"h:1": HARuntimeInfo(ha_connection_info=[behind]), "h:2": HARuntimeInfo(master=False)},
        controllers={"c:1": GetMetaDataResponseHeader(), "c:2": SILENT, "c:3": AdminError("no right", 16)},
    )
    assert texts(judge(found, [], NOW_MS)) == [
        "1 of 3 controllers gone: c:2 (timeout)",
        "The controllers have no leader: they elect no master, and masters lose their leases",
        "a: slave h:9 is not in sync: it lacks 2,048 bytes of the log",
    ]
