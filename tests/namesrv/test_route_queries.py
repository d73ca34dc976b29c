"""Routes and lists on the pure tables."""

from namesrv import route_queries
from namesrv.unregistration import close_channel
from sprocket.remoting.bodies.topic import PERM_READ, TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo
from tests.namesrv.reports import CLUSTER, Reports, body, header

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def test_a_route_has_queues_and_addresses_of_every_group() -> None:
    reports = Reports()
    mapping = TopicQueueMappingInfo(topic="t", bname="broker-a")
    reports.register(of=body(filter_servers=["f"], mappings=[mapping]))
    reports.register(header(addr=SLAVE, broker_id=1), channel_id=2)
    reports.register(header("broker-b", OTHER), channel_id=3)
    route = route_queries.topic_route(reports.table, "t", support_acting_master=False)
    assert route is not None
    assert {q.broker_name for q in route.queue_datas} == {"broker-a", "broker-b"}
    assert {g.broker_name: g.broker_addrs for g in route.broker_datas} == {
        "broker-a": {0: MASTER, 1: SLAVE},
        "broker-b": {0: OTHER},
    }
    assert route.filter_server_table == {MASTER: ["f"]}
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    assert route_queries.topic_route(reports.table, "unknown", support_acting_master=False) is None


def test_a_route_is_a_copy() -> None:
    reports = Reports()
    reports.register()
    route = route_queries.topic_route(reports.table, "t", support_acting_master=False)
    assert route is not None
    route.queue_datas[0].perm = 0
    route.broker_datas[0].broker_addrs.clear()
    assert reports.table.topics["t"]["broker-a"].perm == 6
    assert reports.table.brokers["broker-a"].broker_addrs == {0: MASTER}


def acting_group() -> Reports:
    """A group whose master has gone."""
    reports = Reports()
    topics = ["t", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"]
    reports.register(header(acting=True), body(topics))
    reports.register(header(addr=OTHER, broker_id=3, acting=True), body(topics), 2)
    reports.register(header(addr=SLAVE, broker_id=2, acting=True), body(topics), 3)
    close_channel(reports.table, 1)
    return reports


def addrs_of(reports: Reports, topic: str, support: bool) -> dict[int, str]:
    route = route_queries.topic_route(reports.table, topic, support_acting_master=support)
    assert route is not None
    return route.broker_datas[0].broker_addrs


def test_the_smallest_slave_is_shown_as_the_master_where_that_is_supported() -> None:
    reports = acting_group()
    assert addrs_of(reports, "t", True) == {0: SLAVE, 3: OTHER}
    assert addrs_of(reports, "t", False) == {2: SLAVE, 3: OTHER}
    assert reports.table.brokers["broker-a"].broker_addrs == {2: SLAVE, 3: OTHER}


def test_members_of_a_group_see_slaves_as_slaves() -> None:
    assert addrs_of(acting_group(), "rmq_sys_SYNC_BROKER_MEMBER_broker-a", True) == {2: SLAVE, 3: OTHER}


def test_no_slave_acts_for_a_topic_that_is_still_writable() -> None:
    reports = acting_group()
    reports.table.add_write_perm("broker-a")
    assert addrs_of(reports, "t", True) == {2: SLAVE, 3: OTHER}


def test_a_zone_sees_its_own_groups_and_those_without_a_master() -> None:
    reports = Reports()
    reports.register(header(zone="East"), body(filter_servers=["f"]))
    reports.register(header("broker-b", OTHER, zone="west"), body(filter_servers=["g"]), 2)
    reports.register(header("broker-c", "10.0.0.9:1", 1, acting=True, zone="west"), channel_id=3)
    route = route_queries.topic_route(reports.table, "t", support_acting_master=False)
    assert route is not None
    near = route_queries.in_zone(route, "EAST")
    assert {g.broker_name for g in near.broker_datas} == {"broker-a", "broker-c"}
    assert {q.broker_name for q in near.queue_datas} == {"broker-a", "broker-c"}
    assert near.filter_server_table == {MASTER: ["f"]}


def test_clusters_and_members() -> None:
    reports = Reports()
    reports.register()
    reports.register(header("broker-b", OTHER, cluster="d"), channel_id=2)
    info = route_queries.cluster_info(reports.table)
    assert info.cluster_addr_table == {CLUSTER: ["broker-a"], "d": ["broker-b"]}
    assert info.broker_addr_table["broker-b"].broker_addrs == {0: OTHER}
    assert route_queries.member_group(reports.table, "d", "broker-b").broker_addrs == {0: OTHER}
    assert route_queries.member_group(reports.table, "d", "unknown").broker_addrs == {}


def test_lists_of_topics() -> None:
    reports = Reports()
    unit, sub, both = (TopicConfig(name, topic_sys_flag=flag) for name, flag in (("n", 1), ("s", 2), ("b", 3)))
    reports.register(of=body(["t", unit, sub, both]))
    reports.register(header("broker-b", OTHER, cluster="d"), body(["t", "v"]), 2)
    table = reports.table
    assert sorted(route_queries.all_topics(table).topic_list) == ["b", "n", "s", "t", "v"]
    assert sorted(route_queries.topics_by_cluster(table, "d").topic_list) == ["t", "v"]
    assert route_queries.topics_by_cluster(table, "unknown").topic_list == []
    assert sorted(route_queries.unit_topics(table).topic_list) == ["b", "n"]
    assert sorted(route_queries.unit_sub_topics(table).topic_list) == ["b", "s"]
    assert route_queries.unit_sub_ununit_topics(table).topic_list == ["s"]
    system = route_queries.system_topics(table)
    assert sorted(system.topic_list) == ["broker-a", "broker-b", "c", "d"]
    assert system.broker_addr == MASTER


def test_topics_registered_and_deleted_one_by_one() -> None:
    reports = Reports()
    reports.register()
    reports.register(header("broker-b", OTHER, cluster="d"), channel_id=2)
    queues = [reports.table.topics["t"]["broker-a"]]
    assert reports.table.add_topic("new", queues)
    assert not reports.table.add_topic("other", [*queues, type(queues[0])("unknown", 1, 1, PERM_READ)])
    assert not reports.table.add_topic("other", [])
    assert "other" not in reports.table.topics
    assert reports.table.drop_topic_in_cluster("t", "d") == 1
    assert list(reports.table.topics["t"]) == ["broker-a"]
    assert reports.table.drop_topic_in_cluster("t", "unknown") == 0
    assert reports.table.drop_topic_in_cluster("t", CLUSTER) == 1
    assert "t" not in reports.table.topics
