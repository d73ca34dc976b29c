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
    ("body", "told"),
    [
        (route(1, INT_MAX), "broker-0 has 2147483647 read and 2147483647 write queues, the limit is 65535"),
        (route(1, -1), "broker-0 has -1 read and -1 write queues"),
        (route(4_000, 1_000), "4000000 queues on all brokers, the limit is 262140"),
        (route(1, 1_000, 4_000), "4000000 queues on all brokers"),
        (route(50_000, 1_000), "50000 addresses of brokers, the limit is 4096"),
        (dumps(TopicRouteData(queue_datas=[QueueData("a", 65_535, 0)] * 5)), "327675 queues on all brokers"),
    ],
)
def test_larger_ones_are_refused(body: bytes, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        read_route(body)


@pytest.mark.parametrize("counts", [(INT_MAX, 1), (1, limits.MAX_TOPIC_QUEUES + 1), (-1, 1)])
def test_topic_that_is_registered_alone(counts: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError, match="no more than 65535 queues"):
        read_topic_route(dumps(TopicRouteData(queue_datas=[QueueData("a", *counts)])))
