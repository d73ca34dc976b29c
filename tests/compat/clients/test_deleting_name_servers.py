"""Name servers with deleteTopicWithBrokerRegistration: no change of one topic removes the routes of another.

Sprocket's broker at RocketMQ's name server, and RocketMQ's broker at Sprocket's.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.compat import maven, wire
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

_UPDATE_TOPIC, _DELETE_TOPIC, _ALL_TOPICS = 17, 215, 206
_WAIT_S = 60.0
# RocketMQ's shortest period of registration.
_PERIOD = {"registerNameServerPeriod": "10000"}


class JavaNameServer(ApacheCluster):
    """RocketMQ's name server, Sprocket's broker."""

    def broker_command(self, configuration: Path) -> Sequence[str]:
        return SprocketCluster.broker_command(self, configuration)  # type: ignore[arg-type] # uses no state


class JavaBroker(ApacheCluster):
    """Sprocket's name server, RocketMQ's broker."""

    def name_server_command(self, configuration: Path) -> Sequence[str]:
        return SprocketCluster.name_server_command(self, configuration)  # type: ignore[arg-type] # uses no state


@pytest.fixture
def make(tmp_path: Path) -> Callable[[type[ApacheCluster], Mapping[str, str]], Cluster]:
    def made(kind: type[ApacheCluster], properties: Mapping[str, str]) -> Cluster:
        try:
            cluster = kind(tmp_path, properties={**_PERIOD, **properties})
        except maven.JavaMissingError as missing:
            pytest.skip(str(missing))
        with (cluster.name_servers[0].directory / "namesrv.conf").open("a") as file:
            file.write("deleteTopicWithBrokerRegistration=true\n")
        return cluster

    return made


def routed(cluster: Cluster) -> set[str]:
    return set(json.loads(wire.invoke(cluster.name_servers[0].address, _ALL_TOPICS).body)["topicList"])


def create(cluster: Cluster, topic: str, queues: int = 4) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    assert wire.invoke(cluster.brokers[0].address, _UPDATE_TOPIC, fields).code == 0


def queues_of(cluster: Cluster, topic: str) -> int:
    body = wire.invoke(cluster.name_servers[0].address, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body
    (queues,) = json.loads(body)["queueDatas"]
    return int(queues["writeQueueNums"])


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def change_topics(cluster: Cluster) -> None:
    """Create and change topics; after each change all of them are routed."""
    topics = {"Orders", "Payments", "%RETRY%consumers", "Invoices"}
    made: set[str] = set()
    for topic in sorted(topics):
        create(cluster, topic)
        made.add(topic)
        assert until(lambda: made <= routed(cluster)), routed(cluster)
    for queues in (5, 6):
        create(cluster, "Orders", queues)
        assert until(lambda queues=queues: queues_of(cluster, "Orders") == queues)  # type: ignore[misc]
        assert routed(cluster) >= topics | {"TBW102", "SELF_TEST_TOPIC", cluster.brokers[0].name}


_WAYS = [
    pytest.param({}, id="default"),
    pytest.param({"enableSingleTopicRegister": "true"}, id="enableSingleTopicRegister", marks=pytest.mark.slow),
    pytest.param(
        {"enableSplitRegistration": "true", "splitRegistrationSize": "3"},
        id="enableSplitRegistration+splitRegistrationSize",
    ),
]


@pytest.mark.parametrize("properties", _WAYS)
def test_our_broker_at_rocketmqs_name_server(
    make: Callable[[type[ApacheCluster], Mapping[str, str]], Cluster], properties: dict[str, str]
) -> None:
    with make(JavaNameServer, properties) as cluster:
        change_topics(cluster)
        if "enableSplitRegistration" not in properties:
            assert wire.invoke(cluster.brokers[0].address, _DELETE_TOPIC, {"topic": "Orders"}).code == 0
            assert until(lambda: "Orders" not in routed(cluster)), "the key is honoured"
        assert routed(cluster) >= {"Payments", "Invoices"}


@pytest.mark.parametrize("properties", _WAYS)
def test_rocketmqs_broker_at_our_name_server(
    make: Callable[[type[ApacheCluster], Mapping[str, str]], Cluster], properties: dict[str, str]
) -> None:
    with make(JavaBroker, properties) as cluster:
        change_topics(cluster)
        assert wire.invoke(cluster.brokers[0].address, _DELETE_TOPIC, {"topic": "Orders"}).code == 0
        if "enableSplitRegistration" not in properties:
            assert until(lambda: "Orders" not in routed(cluster)), "the key is honoured"
        assert routed(cluster) >= {"Payments", "Invoices"}
