"""A broker, a name server and a controller with large tables, and requests of every code about all of it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.server import Broker
from namesrv.server import NameServer
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.routes import Action, Route, RouteTable
from tests.fuzz.largest_requests import fields_of
from tests.namesrv.reports import body, header

WIDE, GROUP, OTHER = "Wide", "G0", "G1"
# Requests of these codes change little or nothing.
_READS: Final = (Action.GET, Action.LIST, Action.NONE)


class Size(NamedTuple):
    """How many of each there are: `queues` of the topic `WIDE`, and `offsets` of each group."""

    topics: int
    queues: int
    groups: int
    offsets: int
    brokers: int


LARGE: Final = Size(10_000, 60_000, 1_000, 100, 1_000)


def fill_broker(broker: Broker, size: Size) -> None:
    """Enter topics, groups and offsets; the group `GROUP` has an offset in every queue of `WIDE` and in every topic."""
    names = [f"T{number}" for number in range(size.topics)]
    broker.topics.update([TopicConfig(WIDE, size.queues, size.queues), *(TopicConfig(name, 4, 4) for name in names)])
    broker.groups.update([SubscriptionGroupConfig(f"G{number}") for number in range(size.groups)])
    for queue_id in range(size.queues):
        broker.offsets.assign(GROUP, WIDE, queue_id, 1)
    for topic in names:
        broker.offsets.assign(GROUP, topic, 0, 1)
    for group in range(1, size.groups):
        for number in range(size.offsets):
            broker.offsets.assign(f"G{group}", names[(group * size.offsets + number) % size.topics], number % 4, 1)


def fill_name_server(server: NameServer, size: Size) -> None:
    """Enter `WIDE` on every broker, and the other topics on the first."""
    from namesrv.registration import register

    for number in range(size.brokers):
        names = [WIDE, *(f"T{topic}" for topic in range(0 if number else size.topics))]
        reported = header(f"broker-{number}", f"10.0.{number // 250}.{number % 250}:10911")
        register(server.table, reported, body([*names, "u"]), 1, server.settings.current, 0)


def routes_of(table: RouteTable) -> list[Route]:
    """The routes of a table, those that change anything last."""
    return sorted(table.routes, key=lambda route: (route.action not in _READS, int(route.code)))


def requests_of(route: Route) -> Iterator[dict[str, str]]:
    """Fields of requests that concern as much as they can: the widest topic, all topics, all queues."""
    usual = {name: value for name, value in fields_of(route).items() if name != "topicList"}
    for topic in (WIDE, "") if any("topic" in name.lower() for name in usual) else (WIDE,):
        fields = {}
        for name, value in usual.items():
            low = name.lower()
            if "group" in low:
                value = OTHER if low.startswith("dest") else GROUP
            elif "topic" in low:
                value = topic
            elif low == "cluster":
                value = "c"
            elif low == "queueid":
                value = "-1"
            fields[name] = value
        yield fields
