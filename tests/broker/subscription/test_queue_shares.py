"""Every consumer gets the queues that RocketMQ's broker gives it.

`data/pop-assignments.jsonl` is what `QueryAssignmentProcessor.allocate4Pop` of RocketMQ 5.3.3 computed, once: per
line strategy, queues, clients, popShareQueueNum, and of each client its queues.  Queue i lies on broker i mod 3 of
broker-a, broker-b and broker-c with the id i // 3.
"""

import json
from pathlib import Path

import pytest

from broker.subscription.queue_shares import STRATEGIES, pop_share
from sprocket.remoting.bodies.client import MessageQueue

GOLDEN = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data/pop-assignments.jsonl").read_text().splitlines()
]
BROKERS = ("broker-a", "broker-b", "broker-c")


def clients(count: int) -> list[str]:
    return sorted(f"192.168.0.{i + 1}@{100 + i}#7" for i in range(count))


def queues(count: int) -> list[MessageQueue]:
    return sorted(MessageQueue("Orders", BROKERS[i % 3], i // 3) for i in range(count))


@pytest.mark.parametrize(("strategy", "queue_count", "client_count", "share", "expected"), GOLDEN)
def test_shares_are_those_of_rocketmq(
    strategy: str, queue_count: int, client_count: int, share: int, expected: list[list[str]]
) -> None:
    ids = clients(client_count)
    shares = [pop_share(STRATEGIES[strategy], client, queues(queue_count), ids, share) for client in ids]
    assert [sorted(f"{queue.broker_name}:{queue.queue_id}" for queue in one) for one in shares] == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("share", [1, 2, 3])
def test_each_queue_has_as_many_clients_as_share_it(strategy: str, share: int) -> None:
    ids = clients(6)
    taken = [queue for client in ids for queue in pop_share(STRATEGIES[strategy], client, queues(12), ids, share)]
    assert {taken.count(queue) for queue in queues(12)} == {share + 1}


def test_a_client_that_is_not_in_the_group_gets_no_queue_of_its_own() -> None:
    strategy = STRATEGIES["AVG"]
    assert pop_share(strategy, "somebody else", queues(6), clients(4), 1) == []
    assert pop_share(strategy, "somebody else", queues(2), clients(4), 1) == []
