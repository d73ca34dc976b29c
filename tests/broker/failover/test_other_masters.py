"""Which other master gets a message."""

import pytest

from broker.failover.other_masters import OtherMaster, OtherMasters, chosen, masters_of_cluster, masters_of_route
from sprocket.client.errors import NameServerUnreachable, TopicNotFound
from sprocket.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from tests.clock import ManualClock


def group(name: str, *ids: int, cluster: str = "C") -> BrokerData:
    return BrokerData(cluster, name, {broker_id: f"{name}:{broker_id}" for broker_id in ids})


NAMES = ("own", "b", "readonly", "lost", "far")
ROUTE = TopicRouteData(
    queue_datas=[QueueData(name, 4, 2, 4 if name == "readonly" else 6) for name in NAMES],
    broker_datas=[
        group("own", 0), group("b", 0, 1), group("readonly", 0), group("lost", 1), group("far", 0, cluster="D"),
    ],
)  # fmt: skip


def test_masters_of_the_cluster_that_take_messages_but_for_the_own_group() -> None:
    assert masters_of_route(ROUTE, "C", "own") == [OtherMaster("b", "b:0", 2)]
    info = ClusterInfo({data.broker_name: data for data in ROUTE.broker_datas}, {})
    assert [master.broker_name for master in masters_of_cluster(info, "C", "own")] == ["b", "readonly"]


def test_a_queue_goes_to_the_same_master_until_that_fails() -> None:
    masters = [OtherMaster("a", "a:0", 1), OtherMaster("b", "b:0", 1)]
    first = chosen(masters, "T", 5, 0)
    assert first == chosen(masters, "T", 5, 0)
    assert {first, chosen(masters, "T", 5, 1)} == set(masters)
    assert chosen([], "T", 5, 0) is None


class Source:
    """Name servers that know one topic."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_up = True

    async def topic_route(self, topic: str) -> TopicRouteData:
        self.asked += 1
        if not self.is_up:
            raise NameServerUnreachable("none")
        if topic != "T":
            raise TopicNotFound(topic, "ns")
        return ROUTE

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo({data.broker_name: data for data in ROUTE.broker_datas}, {})


@pytest.mark.parametrize(("topic", "names"), [("T", ["b"]), ("U", []), ("%RETRY%g", ["b", "readonly"])])
async def test_a_retry_topic_goes_to_any_master(topic: str, names: list[str]) -> None:
    masters = OtherMasters(Source(), "C", "own", ManualClock())  # type: ignore[arg-type] # the methods that are called
    assert [master.broker_name for master in await masters.of(topic)] == names


async def test_answers_are_kept_for_seconds_and_forgotten_when_one_is_wrong() -> None:
    clock, source = ManualClock(), Source()
    masters = OtherMasters(source, "C", "own", clock)  # type: ignore[arg-type] # the methods that are called
    await masters.of("T")
    await masters.of("T")
    assert source.asked == 1
    masters.forget("T")
    source.is_up = False
    assert await masters.of("T") == []
    source.is_up = True
    assert await masters.of("T") != []
    clock.advance(6)
    await masters.of("T")
    assert source.asked == 4
