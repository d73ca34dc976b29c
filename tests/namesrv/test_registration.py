"""Registration, data version and heartbeat on the pure tables."""

import pytest

from namesrv import registration
from namesrv.unregistration import close_channel, unregister
from sprocket.remoting.bodies.route import QueueData
from sprocket.remoting.bodies.topic import PERM_READ, PERM_WRITE, DataVersion, TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo
from tests.namesrv.reports import CLUSTER, Reports, body, header

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def test_a_master_brings_its_group_its_cluster_and_its_topics() -> None:
    reports = Reports()
    answer = reports.register(
        header(timeout_ms=5000, zone="z"), body([TopicConfig("t", 3, 4, 6, topic_sys_flag=1), "u"])
    )
    assert (answer.master_addr, answer.ha_server_addr, answer.changes) == (None, None, [])
    table = reports.table
    assert table.clusters == {CLUSTER: {"broker-a"}}
    assert table.brokers["broker-a"].broker_addrs == {0: MASTER}
    assert table.brokers["broker-a"].zone_name == "z"
    assert table.topics["t"] == {"broker-a": QueueData("broker-a", 3, 4, 6, 1)}
    live = table.live[CLUSTER, MASTER]
    assert (live.last_update_ms, live.timeout_ms, live.channel_id) == (1, 5000, 1)


def test_a_broker_that_names_no_timeout_has_two_minutes() -> None:
    reports = Reports()
    reports.register()
    assert reports.table.live[CLUSTER, MASTER].timeout_ms == 120_000


def test_a_slave_is_told_its_master_and_brings_no_topics() -> None:
    reports = Reports()
    reports.register()
    answer = reports.register(header(addr=SLAVE, broker_id=1), body(["of-slave", "u"]))
    assert (answer.master_addr, answer.ha_server_addr) == (MASTER, MASTER + "2")
    assert "of-slave" not in reports.table.topics
    assert reports.table.brokers["broker-a"].broker_addrs == {0: MASTER, 1: SLAVE}


def test_wiped_permissions_outlast_every_registration_until_the_master_restarts() -> None:
    reports = Reports()

    def permissions() -> dict[str, int]:
        return {topic: queues.perm for topic, queues in reports.table.topics_of("broker-a")}

    reports.register()
    assert reports.table.wipe_write_perm("broker-a") == 2
    reports.register(of=body(version=1))
    reports.register(of=body(["t", "u", "new"], version=2))
    reports.register(header(addr=SLAVE, broker_id=1))
    assert permissions() == dict.fromkeys(("t", "u", "new"), PERM_READ)
    unregister(reports.table, CLUSTER, "broker-a", MASTER, 1)
    reports.register(of=body(["t", "u", "new"], version=2), channel_id=2)
    assert permissions() == dict.fromkeys(("t", "u", "new"), PERM_READ | PERM_WRITE)
    reports.table.wipe_write_perm("broker-a")
    reports.table.add_write_perm("broker-a")
    reports.register(of=body(version=3))
    assert permissions() == dict.fromkeys(("t", "u", "new"), PERM_READ | PERM_WRITE)


def test_a_topic_that_was_deleted_here_comes_back_with_the_next_registration() -> None:
    reports = Reports()
    reports.register()
    reports.table.drop_topic("t")
    reports.register(of=body(version=1))
    assert "t" in reports.table.topics


def test_a_single_topic_from_an_unknown_broker_is_refused_and_leaves_no_trace() -> None:
    reports = Reports()
    assert reports.try_register(of=body(["t"])) is None
    assert (reports.table.brokers, reports.table.clusters, reports.table.live) == ({}, {}, {})
    reports.register()
    assert reports.try_register(of=body(["new"], version=2)) is not None
    assert "new" in reports.table.topics


def test_a_slave_that_becomes_the_master_leaves_its_old_id() -> None:
    reports = Reports()
    reports.register()
    reports.register(header(addr=SLAVE, broker_id=1), channel_id=2)
    reports.register(header(addr=SLAVE, broker_id=0), channel_id=2)
    assert reports.table.brokers["broker-a"].broker_addrs == {0: SLAVE}


def test_a_place_held_by_a_newer_state_is_not_taken() -> None:
    reports = Reports()
    reports.register(of=body(state_version=2))
    reports.register(header(addr=SLAVE, broker_id=1), channel_id=2)
    answer = reports.register(header(addr=SLAVE, broker_id=0), body(state_version=1), 2)
    assert (answer.master_addr, answer.changes) == (None, [])
    assert reports.table.brokers["broker-a"].broker_addrs == {0: MASTER}
    assert (CLUSTER, SLAVE) not in reports.table.live


def test_a_place_held_by_an_older_state_is_taken() -> None:
    reports = Reports()
    reports.register(of=body(state_version=1))
    reports.register(header(addr=SLAVE), body(state_version=2), 2)
    assert reports.table.brokers["broker-a"].broker_addrs == {0: SLAVE}


def test_the_prime_slave_of_an_acting_group_brings_topics_that_are_read_only() -> None:
    reports = Reports()
    reports.register(header(addr=OTHER, broker_id=2, acting=True))
    assert reports.table.topics["t"]["broker-a"].perm == PERM_READ
    # Not the prime slave: its topics do not count.
    reports.register(header(addr=SLAVE, broker_id=3, acting=True), body(["of-3", "t"]), 2)
    assert "of-3" not in reports.table.topics
    # The master is back.
    reports.register(header(acting=True), channel_id=3)
    assert reports.table.topics["t"]["broker-a"].perm == PERM_READ | PERM_WRITE


def test_an_old_slave_never_brings_topics() -> None:
    reports = Reports()
    reports.register(header(addr=SLAVE, broker_id=1, acting=None))
    assert reports.table.topics == {}


def test_the_other_members_hear_of_a_smaller_broker_id() -> None:
    reports = Reports()
    reports.register(header(addr=OTHER, broker_id=2, acting=True))
    (change,) = reports.register(header(acting=True), channel_id=2).changes
    assert (change.min_broker_id, change.min_broker_addr, change.ha_broker_addr) == (0, MASTER, MASTER + "2")
    assert (change.offline_broker_addr, change.notify_addrs) == (None, [OTHER])
    assert reports.register(header(addr=SLAVE, broker_id=1, acting=True), channel_id=3).changes == []


def test_an_address_under_a_new_name_is_gone_under_the_old_one() -> None:
    reports = Reports()
    reports.register(header("old-name"))
    reports.register(header("new-name"), channel_id=2)
    assert list(reports.table.brokers) == ["new-name"]
    assert reports.table.clusters == {CLUSTER: {"new-name"}}
    assert list(reports.table.topics["t"]) == ["new-name"]


def test_filter_servers_come_and_go_with_registrations() -> None:
    reports = Reports()
    reports.register(of=body(filter_servers=["f1", "f2"]))
    assert reports.table.filter_servers == {(CLUSTER, MASTER): ["f1", "f2"]}
    reports.register()
    assert reports.table.filter_servers == {}


def test_queue_mappings_are_kept_by_the_broker_that_they_name() -> None:
    reports = Reports()
    mapping = TopicQueueMappingInfo(topic="t", total_queues=8, bname="broker-a", curr_id_map={"0": 0})
    reports.register(of=body(mappings=[mapping]))
    assert reports.table.mappings == {"t": {"broker-a": mapping}}
    reports.table.drop_topic("t")
    assert reports.table.mappings == {}


def test_whether_a_broker_must_register() -> None:
    reports = Reports()
    table = reports.table
    assert registration.is_changed(table, CLUSTER, MASTER, DataVersion(0, 1000, 1))
    reports.register()
    assert not registration.is_changed(table, CLUSTER, MASTER, DataVersion(0, 1000, 1))
    assert registration.is_changed(table, CLUSTER, MASTER, DataVersion(0, 1000, 2))
    assert registration.is_changed(table, "elsewhere", MASTER, DataVersion(0, 1000, 1))


def test_a_broker_whose_place_is_free_again_must_register() -> None:
    reports = Reports()
    reports.register()
    reports.register(header(addr=OTHER), channel_id=2)
    version = DataVersion(0, 1000, 1)
    assert not registration.is_changed(reports.table, CLUSTER, MASTER, version)
    close_channel(reports.table, 2)
    assert registration.is_changed(reports.table, CLUSTER, MASTER, version)


def test_a_sign_of_life_counts_and_a_newer_connection_takes_over() -> None:
    reports = Reports()
    reports.register(channel_id=5)
    live = reports.table.live[CLUSTER, MASTER]
    registration.note_alive(reports.table, CLUSTER, MASTER, 4, 70)
    assert (live.last_update_ms, live.channel_id) == (70, 5)
    registration.note_alive(reports.table, CLUSTER, MASTER, 6, 80)
    assert (live.last_update_ms, live.channel_id) == (80, 6)
    registration.note_alive(reports.table, CLUSTER, "unknown:1", 6, 80)
    assert list(reports.table.live) == [(CLUSTER, MASTER)]


def test_topic_with_more_queues_than_a_broker_can_have_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Clients list the queues of a route: a stranger's registration would take all their memory."""
    reports = Reports()
    reports.register(of=body([TopicConfig("t", 4, 4), "u"]))
    impossible = [TopicConfig("t", 2**31 - 1, 4), TopicConfig("v", 4, 65_536), TopicConfig("w", -1, 4), "u"]
    reports.register(of=body([*impossible, TopicConfig("x", 65_535, 65_535)], version=2))
    assert not {"t", "v", "w"} & set(reports.table.topics)
    assert reports.table.topics["x"] == {"broker-a": QueueData("broker-a", 65_535, 65_535, 6)}
    assert "u" in reports.table.topics
    assert "event=topic_refused topic=t broker=broker-a read=2147483647 write=4 max=65535" in caplog.text
