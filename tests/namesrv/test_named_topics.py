"""deleteTopicWithBrokerRegistration removes topics that a broker no longer has, and never one that it has."""

import random
from collections.abc import Sequence

import pytest

from namesrv import registration
from namesrv.config import NamesrvConfig
from sprocket.remoting.bodies.route import QueueData
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo
from tests.namesrv.reports import CLUSTER, FIXED, Reports, body, header
from tests.tiers import seeds

DELETES = NamesrvConfig(delete_topic_with_broker_registration=True)
ADDRESS = "10.0.0.1:10911"


class Broker:
    """Registrations of one broker, one version after the other."""

    def __init__(self, config: NamesrvConfig = DELETES, *, marks_parts: bool = False) -> None:
        self.reports = Reports(config, marks_parts=marks_parts)
        self.version = 0

    def register(self, topics: Sequence[str], mappings: Sequence[TopicQueueMappingInfo] = ()) -> None:
        self.version += 1
        self.reports.register(of=body(topics, self.version, mappings=mappings))

    @property
    def routed(self) -> set[str]:
        return {topic for topic, _ in self.reports.table.topics_of("broker-a")} - set(FIXED)


def test_a_changed_topic_removes_no_route() -> None:
    broker = Broker()
    broker.register([*FIXED, "t", "u"])
    for _ in range(5):
        broker.register(["u"])
        broker.register(["%RETRY%g"])
    assert broker.routed == {"t", "u", "%RETRY%g"}


def test_a_route_goes_with_the_second_list_that_does_not_name_its_topic() -> None:
    broker = Broker()
    broker.register([*FIXED, "t", "u"])
    broker.register([*FIXED, "u"])
    assert broker.routed == {"t", "u"}
    assert registration.is_changed(broker.reports.table, CLUSTER, ADDRESS, DataVersion(0, 1000, 2)), "a list is due"
    broker.register([*FIXED, "u"])
    assert broker.routed == {"u"}
    assert not registration.is_changed(broker.reports.table, CLUSTER, ADDRESS, DataVersion(0, 1000, 3))


def test_a_list_of_a_broker_that_marks_parts_counts_at_once() -> None:
    broker = Broker(marks_parts=True)
    broker.register([*FIXED, "t", "u"])
    broker.register(["v"])
    assert broker.routed == {"t", "u", "v"}
    broker.register([*FIXED, "u"], [TopicQueueMappingInfo("mark", bname="broker-a")])
    assert broker.routed == {"t", "u", "v"}
    broker.register([*FIXED, "u"])
    assert broker.routed == {"u"}


def test_without_the_key_a_route_stays() -> None:
    broker = Broker(NamesrvConfig(), marks_parts=True)
    broker.register([*FIXED, "t"])
    broker.register(FIXED)
    assert broker.routed == {"t"}
    assert not broker.reports.table.named


def test_routes_of_other_brokers_stay() -> None:
    broker = Broker(marks_parts=True)
    broker.register([*FIXED, "t"])
    broker.reports.register(header("broker-b", "10.0.0.3:10911"), body([*FIXED, "broker-b", "t"]), 2)
    broker.register(FIXED)
    assert list(broker.reports.table.topics["t"]) == ["broker-b"]


def test_a_topic_registered_alone_is_named() -> None:
    broker = Broker()
    broker.register([*FIXED, "t"])
    for _ in range(5):
        assert broker.reports.table.add_topic("t", [QueueData("broker-a", 4, 4, 6, 0)])
        broker.register(FIXED)
    assert broker.routed == {"t"}


def test_what_was_routed_before_the_key_was_set_has_two_lists_to_be_named() -> None:
    broker = Broker(NamesrvConfig())
    broker.register([*FIXED, "t", "u"])
    broker.reports.config = DELETES
    broker.register([*FIXED, "u"])
    broker.register([*FIXED, "u"])
    assert broker.routed == {"t", "u"}
    broker.register([*FIXED, "u"])
    assert broker.routed == {"u"}


def test_a_broker_that_left_leaves_no_record() -> None:
    broker = Broker()
    broker.register([*FIXED, "t"])
    registration.remove(broker.reports.table, broker.reports.table.live[CLUSTER, ADDRESS], "test")
    assert not broker.reports.table.named


@pytest.mark.parametrize("seed", seeds(20))
def test_parts_in_whatever_order_remove_nothing_and_a_deleted_topic_goes(seed: int) -> None:
    """As RocketMQ's broker with enableSplitRegistration: each pass has the same topics, perhaps in another order."""
    chance = random.Random(seed)
    topics = [*FIXED, *(f"t{number}" for number in range(chance.randrange(2, 12)))]
    size = chance.randrange(4, 14)
    broker = Broker()
    broker.register(topics)

    def register_parts() -> None:
        if chance.random() < 0.5:
            chance.shuffle(topics)
        for at in range(0, len(topics), size):
            broker.register(topics[at : at + size])
            assert broker.routed >= set(topics) - set(FIXED)

    for _ in range(10):
        register_parts()
        broker.register([chance.choice(topics)])
    gone = next(topic for topic in topics if topic not in FIXED)
    topics.remove(gone)
    for _ in range(3):
        register_parts()
    # Parts that never name all fixed topics together remove nothing.
    if len(topics) <= size:
        assert gone not in broker.routed
