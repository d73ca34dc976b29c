"""Queries of brokers, clients and operators over the tables.  Results are copies.

Source: RocketMQ 5.3.3, `RouteInfoManager.pickupTopicRouteData` and its neighbours, `TopicSysFlag`,
`ZoneRouteRPCHook`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from namesrv.route_table import RouteInfo, has_master
from sprocket.remoting.bodies.route import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from sprocket.remoting.bodies.topic import PERM_WRITE, TopicList
from sprocket.remoting.message.topic_names import SYNC_BROKER_MEMBER_GROUP_PREFIX

# Members of a group find each other by topics with SYNC_BROKER_MEMBER_GROUP_PREFIX; slaves are shown as slaves.
_FLAG_UNIT = 0x1
_FLAG_UNIT_SUB = 0x2


def topic_route(table: RouteInfo, topic: str, *, support_acting_master: bool) -> TopicRouteData | None:
    """Return where the queues of `topic` are; None if no registered broker has any.

    With `support_acting_master` a slave that substitutes a lost master is shown as the master.
    """
    queues = table.topics.get(topic)
    if queues is None:
        return None
    groups = [_copy(table.brokers[name]) for name in queues if name in table.brokers]
    if not groups:
        return None
    route = TopicRouteData(
        queue_datas=[replace(queue_data) for queue_data in queues.values()],
        broker_datas=groups,
        filter_server_table=_filter_servers(table, groups),
        topic_queue_mapping_by_broker=table.mappings.get(topic),
    )
    # Through topics of this prefix the members of a broker group find each other, slaves as slaves.
    if support_acting_master and not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX):
        for group in groups:
            _show_acting_master(group, queues[group.broker_name])
    return route


def in_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Return `route` without broker groups of other zones.  A group without a master stays: a slave may be near."""
    zone = zone_name.lower()
    kept: list[BrokerData] = []
    dropped: list[BrokerData] = []
    for group in route.broker_datas:
        near = not has_master(group) or (group.zone_name or "").lower() == zone
        (kept if near else dropped).append(group)
    far_names = {group.broker_name for group in dropped}
    far_addrs = {addr for group in dropped for addr in group.broker_addrs.values()}
    return replace(
        route,
        broker_datas=kept,
        queue_datas=[queues for queues in route.queue_datas if queues.broker_name not in far_names],
        filter_server_table={a: servers for a, servers in route.filter_server_table.items() if a not in far_addrs},
    )


def cluster_info(table: RouteInfo) -> ClusterInfo:
    """Return all broker groups, and the groups of each cluster."""
    return ClusterInfo(
        broker_addr_table={name: _copy(group) for name, group in table.brokers.items()},
        cluster_addr_table={name: sorted(members) for name, members in table.clusters.items()},
    )


def member_group(table: RouteInfo, cluster_name: str, broker_name: str) -> BrokerMemberGroup:
    """Return the members of a broker group; none if it is unknown."""
    group = table.brokers.get(broker_name)
    return BrokerMemberGroup(cluster_name, broker_name, dict(group.broker_addrs) if group else {})


def all_topics(table: RouteInfo) -> TopicList:
    """Return all topics."""
    return TopicList(list(table.topics))


def topics_by_cluster(table: RouteInfo, cluster_name: str) -> TopicList:
    """Return the topics that have queues on a broker of the cluster."""
    members = table.clusters.get(cluster_name, set())
    return TopicList([topic for topic, queues in table.topics.items() if not members.isdisjoint(queues)])


def system_topics(table: RouteInfo) -> TopicList:
    """Return names of clusters and broker groups, which are topics on every broker, and the address of one broker."""
    names = dict.fromkeys(name for cluster, members in table.clusters.items() for name in (cluster, *sorted(members)))
    addrs = (addr for group in table.brokers.values() for addr in group.broker_addrs.values())
    return TopicList(list(names), next(addrs, None))


def unit_topics(table: RouteInfo) -> TopicList:
    """Return the topics of units."""
    return _topics_by_flag(table, lambda flag: bool(flag & _FLAG_UNIT))


def unit_sub_topics(table: RouteInfo) -> TopicList:
    """Return the topics that units subscribe to."""
    return _topics_by_flag(table, lambda flag: bool(flag & _FLAG_UNIT_SUB))


def unit_sub_ununit_topics(table: RouteInfo) -> TopicList:
    """Return the topics that units subscribe to and that belong to no unit."""
    return _topics_by_flag(table, lambda flag: bool(flag & _FLAG_UNIT_SUB) and not flag & _FLAG_UNIT)


def _topics_by_flag(table: RouteInfo, wanted: Callable[[int], bool]) -> TopicList:
    """Select by the system flag of a topic on the first of its broker groups."""
    return TopicList(
        [topic for topic, queues in table.topics.items() if wanted(next(iter(queues.values())).topic_sys_flag)]
    )


def _copy(group: BrokerData) -> BrokerData:
    return replace(group, broker_addrs=dict(group.broker_addrs))


def _filter_servers(table: RouteInfo, groups: list[BrokerData]) -> dict[str, list[str]]:
    if not table.filter_servers:
        return {}
    found = {}
    for group in groups:
        for addr in group.broker_addrs.values():
            servers = table.filter_servers.get((group.cluster or "", addr))
            if servers is not None:
                found[addr] = servers
    return found


def _show_acting_master(group: BrokerData, queues: QueueData) -> None:
    """Make the slave with the smallest id the master of `group`, if there is none and the topic is read-only."""
    if group.enable_acting_master and group.broker_addrs and not has_master(group) and not queues.perm & PERM_WRITE:
        group.broker_addrs[MASTER_ID] = group.broker_addrs.pop(min(group.broker_addrs))
