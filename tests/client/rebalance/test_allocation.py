"""Every strategy gives each client the queues that Java's gives it."""

import pytest

from sprocket import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from sprocket.remoting.bodies.client import MessageQueue
from tests.client.java_vectors import ALLOCATIONS

STRATEGIES: dict[str, AllocateMessageQueueStrategy] = {
    "AVG": AllocateMessageQueueAveragely(),
    "AVG_BY_CIRCLE": AllocateMessageQueueAveragelyByCircle(),
    "CONSISTENT_HASH": AllocateMessageQueueConsistentHash(),
    "CONSISTENT_HASH_3": AllocateMessageQueueConsistentHash(3),
    "MACHINE_ROOM": AllocateMessageQueueByMachineRoom(["room1", "room3"]),
}
BROKERS = ("room1@a", "room2@b", "room3@c")


def case(queue_count: int, client_count: int) -> tuple[list[MessageQueue], list[str]]:
    queues = sorted(MessageQueue("TopicTest", BROKERS[i % 3], i // 3) for i in range(queue_count))
    return queues, sorted(f"192.168.0.{i + 1}@{100 + i}#7" for i in range(client_count))


@pytest.mark.parametrize(("name", "queue_count", "client_count", "expected"), ALLOCATIONS)
def test_division_is_that_of_java(name: str, queue_count: int, client_count: int, expected: list[list[int]]) -> None:
    queues, clients = case(queue_count, client_count)
    divided = [STRATEGIES[name].allocate(client, queues, clients) for client in clients]
    assert [[queues.index(queue) for queue in mine] for mine in divided] == expected


@pytest.mark.parametrize("name", STRATEGIES)
def test_client_that_is_not_in_the_group_gets_nothing(name: str) -> None:
    queues, clients = case(8, 3)
    assert STRATEGIES[name].allocate("somebody else", queues, clients) == []


def test_configured_queues_are_given_to_anybody() -> None:
    queues, clients = case(8, 3)
    assert AllocateMessageQueueByConfig(queues[2:4]).allocate("anybody", queues, clients) == queues[2:4]


def test_ring_without_points_gives_nothing() -> None:
    queues, clients = case(8, 3)
    assert AllocateMessageQueueConsistentHash(0).allocate(clients[0], queues, clients) == []
    with pytest.raises(ValueError, match="virtual_nodes is -1"):
        AllocateMessageQueueConsistentHash(-1)
