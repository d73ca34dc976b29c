"""Strategies that divide the queues of a topic among the consumers of a group.  Pure.

Source: RocketMQ 5.3.3, package `org.apache.rocketmq.client.consumer.rebalance`, `ConsistentHashRouter`.  Every
member computes the same division from the same sorted lists, so the results are those of Java's, queue by queue.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Protocol

from sprocket.client import arguments
from sprocket.remoting.bodies.client import MessageQueue


class AllocateMessageQueueStrategy(Protocol):
    """Which of `queues` belong to `client_id`, one of `client_ids`; both lists are sorted."""

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]: ...


class AllocateMessageQueueAveragely:
    """Consecutive queues, evenly divided; the first members get one more.  The default."""

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        share, remainder = divmod(len(queues), len(client_ids))
        start = index * share + min(index, remainder)
        return list(queues[start : start + share + (index < remainder)])


class AllocateMessageQueueAveragelyByCircle:
    """Queues dealt out one by one, like cards."""

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class AllocateMessageQueueByConfig:
    """The same queues always, independent of the group's members."""

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        """Raises IllegalArgument."""
        self._queues = [
            arguments.choice("an entry of queues", one, MessageQueue, "pass MessageQueues") for one in queues
        ]

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        return list(self._queues)


class AllocateMessageQueueByMachineRoom:
    """Evenly divided queues of the brokers named ``<room>@<name>`` in the given rooms."""

    def __init__(self, rooms: str | Iterable[str]) -> None:
        """A str is one room.  Raises IllegalArgument."""
        self._rooms = frozenset(arguments.names_of("rooms", rooms))

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        index = client_ids.index(client_id)
        share, remainder = divmod(len(near), len(client_ids))
        mine = near[index * share : (index + 1) * share]
        if index < remainder:
            mine.append(near[index + share * len(client_ids)])
        return mine

    def _is_near(self, broker_name: str) -> bool:
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class AllocateMessageQueueConsistentHash:
    """Division by a hash ring with `virtual_nodes` points per client: a change of members moves few queues."""

    def __init__(self, virtual_nodes: int = 10) -> None:
        """Raises IllegalArgument."""
        self._virtual_nodes = arguments.whole("virtual_nodes", virtual_nodes, 0)

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        ring, points = _ring(tuple(client_ids), self._virtual_nodes)
        if not points:
            return []
        mine = []
        for queue in queues:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            point = bisect_left(points, _hash(text))
            if ring[points[point % len(points)]] == client_id:
                mine.append(queue)
        return mine


@lru_cache(maxsize=16)  # a broker divides for many members of few groups
def _ring(client_ids: tuple[str, ...], virtual_nodes: int) -> tuple[dict[int, str], list[int]]:
    """Return the client of each point, and the sorted points."""
    ring = {_hash(f"{member}-{index}"): member for member in client_ids for index in range(virtual_nodes)}
    return ring, sorted(ring)


def _hash(text: str) -> int:
    """Return the first four bytes of the MD5 digest."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
