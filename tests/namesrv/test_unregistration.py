"""Removal of brokers; an older incarnation never removes the live one."""

from namesrv.registration import note_alive
from namesrv.unregistration import close_channel, expire, unregister
from sprocket.remoting.bodies.topic import PERM_READ, PERM_WRITE
from tests.namesrv.reports import CLUSTER, Reports, body, header

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def is_empty(reports: Reports) -> bool:
    table = reports.table
    return not (table.topics or table.brokers or table.clusters or table.live or table.filter_servers or table.mappings)


def test_the_last_broker_takes_everything_with_it() -> None:
    reports = Reports()
    reports.register(of=body(filter_servers=["f"]))
    assert unregister(reports.table, CLUSTER, "broker-a", MASTER, 1) == []
    assert is_empty(reports)


def test_other_groups_keep_their_queues_of_the_same_topic() -> None:
    reports = Reports()
    reports.register(of=body(["t", "only-a"]))
    reports.register(header("broker-b", OTHER), channel_id=2)
    unregister(reports.table, CLUSTER, "broker-a", MASTER, 1)
    assert list(reports.table.topics["t"]) == ["broker-b"]
    assert "only-a" not in reports.table.topics
    assert reports.table.clusters == {CLUSTER: {"broker-b"}}


def test_a_slave_keeps_the_group_and_its_topics() -> None:
    reports = Reports()
    reports.register()
    reports.register(header(addr=SLAVE, broker_id=1), channel_id=2)
    close_channel(reports.table, 1)
    assert reports.table.brokers["broker-a"].broker_addrs == {1: SLAVE}
    assert reports.table.topics["t"]["broker-a"].perm == PERM_READ | PERM_WRITE


def test_an_acting_group_without_its_master_is_read_only_and_its_members_are_told() -> None:
    reports = Reports()
    reports.register(header(acting=True))
    reports.register(header(addr=SLAVE, broker_id=1, acting=True), channel_id=2)
    reports.register(header(addr=OTHER, broker_id=2, acting=True), channel_id=3)
    (change,) = close_channel(reports.table, 1)
    assert (change.min_broker_id, change.min_broker_addr) == (1, SLAVE)
    assert (change.offline_broker_addr, change.notify_addrs) == (MASTER, [SLAVE, OTHER])
    assert reports.table.topics["t"]["broker-a"].perm == PERM_READ
    assert close_channel(reports.table, 3) == []  # the smallest id is unchanged


def test_a_closed_connection_removes_all_brokers_that_shared_it() -> None:
    reports = Reports()
    reports.register(channel_id=7)
    reports.register(header("broker-b", OTHER), channel_id=7)
    close_channel(reports.table, 8)
    assert len(reports.table.live) == 2
    close_channel(reports.table, 7)
    assert is_empty(reports)


def test_silence_beyond_the_timeout_removes_a_broker() -> None:
    reports = Reports()
    reports.register(header(timeout_ms=1000))  # at 1 ms
    reports.register(header("broker-b", OTHER), channel_id=2)  # at 2 ms, 120 s
    assert expire(reports.table, 1001) == ([], [])
    silent, _ = expire(reports.table, 1002)
    assert [live.broker_addr for live in silent] == [MASTER]
    assert list(reports.table.brokers) == ["broker-b"]
    note_alive(reports.table, CLUSTER, OTHER, 2, 60_000)
    assert expire(reports.table, 120_003) == ([], [])
    assert [live.broker_addr for live in expire(reports.table, 180_001)[0]] == [OTHER]
    assert is_empty(reports)


def test_the_close_of_an_older_connection_leaves_the_broker_that_registered_again() -> None:
    reports = Reports()
    reports.register(channel_id=1)
    reports.register(channel_id=2)
    close_channel(reports.table, 1)
    assert reports.table.brokers["broker-a"].broker_addrs == {0: MASTER}
    close_channel(reports.table, 2)
    assert is_empty(reports)


def test_the_close_of_an_older_connection_leaves_the_broker_that_only_gave_a_sign_of_life_since() -> None:
    reports = Reports()
    reports.register(channel_id=1)
    note_alive(reports.table, CLUSTER, MASTER, 2, 50)
    close_channel(reports.table, 1)
    assert (CLUSTER, MASTER) in reports.table.live


def test_an_unregistration_over_an_older_connection_is_ignored() -> None:
    reports = Reports()
    reports.register(channel_id=1)
    reports.register(channel_id=2)
    unregister(reports.table, CLUSTER, "broker-a", MASTER, 1)
    assert (CLUSTER, MASTER) in reports.table.live
    unregister(reports.table, CLUSTER, "broker-a", MASTER, 3)  # newer: the broker itself, over a new connection
    assert is_empty(reports)


def test_a_registration_that_arrives_late_over_the_older_connection_does_not_revive_it() -> None:
    reports = Reports()
    reports.register(channel_id=2)
    reports.register(channel_id=1)
    close_channel(reports.table, 1)
    assert (CLUSTER, MASTER) in reports.table.live


def test_an_unregistration_under_a_former_name_is_ignored() -> None:
    reports = Reports()
    reports.register(header("old-name"), channel_id=1)
    reports.register(header("new-name"), channel_id=2)
    unregister(reports.table, CLUSTER, "old-name", MASTER, 1)
    unregister(reports.table, CLUSTER, "old-name", MASTER, 9)
    assert list(reports.table.brokers) == ["new-name"]


def test_a_broker_whose_place_was_taken_leaves_without_its_successor() -> None:
    reports = Reports()
    reports.register(header(acting=True), channel_id=1)
    reports.register(header(addr=SLAVE, broker_id=1, acting=True), channel_id=3)
    reports.register(header(addr=OTHER, acting=True), channel_id=2)  # the same id at another address
    assert close_channel(reports.table, 1) == []
    assert reports.table.brokers["broker-a"].broker_addrs == {0: OTHER, 1: SLAVE}
    assert reports.table.topics["t"]["broker-a"].perm == PERM_READ | PERM_WRITE


def test_unknown_brokers_are_no_error() -> None:
    reports = Reports()
    assert unregister(reports.table, CLUSTER, "broker-a", MASTER, 1) == []
    assert close_channel(reports.table, 1) == []
    assert expire(reports.table, 1) == ([], [])
