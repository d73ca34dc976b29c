"""A route whose reader would list more queues or addresses than a cluster can have is refused before that."""

import pytest

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.requests import read_topic_route
from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData, read_route
from sprocket.remoting.codec.fastjson import dumps

INT_MAX = 2**31 - 1


def route(brokers: int, queues: int, members: int = 1) -> bytes:
    names = [f"broker-{number}" for number in range(brokers)]
    return dumps(
        TopicRouteData(
            queue_datas=[QueueData(name, queues, queues, 6) for name in names],
            broker_datas=[BrokerData("c", name, {id_: f"{name}:{id_}" for id_ in range(members)}) for name in names],
        )
    )


@pytest.mark.parametrize(("brokers", "queues", "members"), [(0, 0, 1), (1, 65_535, 3), (4, 65_535, 1), (500, 16, 3)])
def test_largest_clusters_are_read(brokers: int, queues: int, members: int) -> None:
    assert len(read_route(route(brokers, queues, members)).queue_datas) == brokers


@pytest.mark.parametrize(
    ("brokers", "queues", "members", "told"),
    [
        (1, INT_MAX, 1, "broker-0 has 2147483647 read and 2147483647 write queues, the limit is 65535"),
        (1, -1, 1, "broker-0 has -1 read and -1 write queues"),
        (4_000, 1_000, 1, "4000000 queues on all brokers, the limit is 262140"),
        (1, 1_000, 4_000, "4000000 queues on all brokers"),
        (50_000, 1_000, 1, "50000 addresses of brokers, the limit is 4096"),
    ],
)
def test_larger_ones_are_refused(brokers: int, queues: int, members: int, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        read_route(route(brokers, queues, members))


def test_one_broker_named_often_is_refused() -> None:
    with pytest.raises(ProtocolError, match="327675 queues on all brokers"):
        read_route(dumps(TopicRouteData(queue_datas=[QueueData("a", 65_535, 0)] * 5)))


@pytest.mark.parametrize("counts", [(INT_MAX, 1), (1, limits.MAX_TOPIC_QUEUES + 1), (-1, 1)])
def test_topic_that_is_registered_alone(counts: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError, match="no more than 65535 queues"):
        read_topic_route(dumps(TopicRouteData(queue_datas=[QueueData("a", *counts)])))
