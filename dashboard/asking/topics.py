"""Requests about topics."""

from collections.abc import Iterable
from dataclasses import dataclass

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, Outcomes, answered
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.lite import GetParentTopicInfoResponseBody
from sprocket.remoting.bodies.route import TopicRouteData, addresses_of
from sprocket.remoting.bodies.stats import BrokerStatsData, OffsetWrapper, TopicOffset
from sprocket.remoting.bodies.topic import MESSAGE_TYPE, TopicConfig
from sprocket.remoting.message.message_type import MessageType

# Source: RocketMQ 5.3.3, `BrokerStatsManager.TOPIC_PUT_NUMS`.
_TOPIC_PUT = "TOPIC_PUT_NUMS"
# Groups of a topic of type PRIORITY whose waiting messages are shown.
MAX_PRIORITY_GROUPS = 8

Extents = dict[MessageQueue, TopicOffset]
Offsets = dict[MessageQueue, OffsetWrapper]


@dataclass(frozen=True)
class TopicAnswers:
    """What brokers said of one topic, by broker name."""

    route: TopicRouteData
    configs: Outcomes[str, TopicConfig | None]
    extents: Outcomes[str, Extents]
    rates: Outcomes[str, BrokerStatsData]
    groups: Outcomes[str, list[str]]
    lite: Outcomes[str, GetParentTopicInfoResponseBody]  # of a topic of type LITE
    offsets: Outcomes[tuple[str, str], Offsets]  # of a topic of type PRIORITY: all those of its groups, by group, too


async def topic_names(admin: AdminClient) -> tuple[list[str], frozenset[str]]:
    """Return all topics, and the names of clusters and brokers, which are topics too.  Raises AdminError."""
    info = await admin.cluster_info()
    own = frozenset(info.cluster_addr_table) | frozenset(info.broker_addr_table)
    return await admin.topic_list(), own | {f"{name}_REPLY_TOPIC" for name in info.cluster_addr_table}


async def topic_answers(admin: AdminClient, at_once: AtOnce, topic: str) -> TopicAnswers:
    """Ask the brokers on the route of a topic.  Raises AdminError without a route."""
    route = await admin.topic_route(topic)
    addresses = addresses_of(route.broker_datas)
    groups = GroupAdmin(admin)
    configs: Outcomes[str, TopicConfig | None] = await at_once.each(
        addresses, lambda name: admin.topic_config(addresses[name], topic)
    )
    types = {name: type_of(config) for name, config in answered(configs).items() if config is not None}
    parents = [name for name, found in types.items() if found == MessageType.LITE]
    of_topic = await at_once.each(addresses, lambda name: admin.broker_groups_of_topic(addresses[name], topic))
    readers = [
        (name, group)
        for name, found in answered(of_topic).items()
        for group in sorted(found)[:MAX_PRIORITY_GROUPS]
        if types.get(name) == MessageType.PRIORITY
    ]
    return TopicAnswers(
        route,
        configs,
        await at_once.each(addresses, lambda name: extents_of(admin, addresses[name], topic)),
        await at_once.each(addresses, lambda name: groups.stats(addresses[name], _TOPIC_PUT, topic)),
        of_topic,
        await at_once.each(parents, lambda name: admin.parent_topic_info(addresses[name], topic)),
        await at_once.each(readers, lambda reader: groups.offsets(addresses[reader[0]], reader[1])),
    )


async def extents_of(admin: AdminClient, broker: str, topic: str) -> Extents:
    """Return the extent of each queue of a topic on the broker at an address."""
    return (await admin.broker_topic_stats(broker, topic)).offset_table


def type_of(config: TopicConfig) -> str:
    """Return the type of a topic's messages, NORMAL if none is set."""
    return config.attributes.get(MESSAGE_TYPE) or MessageType.NORMAL


async def summaries(
    admin: AdminClient, at_once: AtOnce, topics: Iterable[str]
) -> tuple[
    Outcomes[str, TopicRouteData], Outcomes[tuple[str, str], Extents], Outcomes[tuple[str, str], BrokerStatsData]
]:
    """Return routes by topic, then extents and rates by topic and broker name."""
    routes = await at_once.each(topics, admin.topic_route)
    places = {
        (topic, name): address
        for topic, route in routes.items()
        if not isinstance(route, AdminError)
        for name, address in addresses_of(route.broker_datas).items()
    }
    groups = GroupAdmin(admin)
    extents = await at_once.each(places, lambda place: extents_of(admin, places[place], place[0]))
    rates = await at_once.each(places, lambda place: groups.stats(places[place], _TOPIC_PUT, place[0]))
    return routes, extents, rates
