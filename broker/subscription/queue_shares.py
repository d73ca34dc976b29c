"""Assignment of queues to the consumers of a group by the broker.  Pure.

Source: RocketMQ 5.3.3, `QueryAssignmentProcessor.doLoadBalance`, `allocate4Pop`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sprocket.client.rebalance.allocation import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from sprocket.remoting.bodies.client import MessageQueue

# By name (`AllocateMessageQueueStrategy.getName`).  RocketMQ's broker knows the first two.  The other strategies of its
# client (CONFIG, MACHINE_ROOM, MACHINE_ROOM_NEARBY) need settings that only the client has.
STRATEGIES: Final[Mapping[str, AllocateMessageQueueStrategy]] = {
    "AVG": AllocateMessageQueueAveragely(),
    "AVG_BY_CIRCLE": AllocateMessageQueueAveragelyByCircle(),
    "CONSISTENT_HASH": AllocateMessageQueueConsistentHash(),
}
# The queue id that means all queues of a broker.
ALL_QUEUES: Final = -1


def pop_share(
    strategy: AllocateMessageQueueStrategy,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    share_queue_num: int,
) -> list[MessageQueue]:
    """Return the queues from which `client_id` pops; both lists are sorted.

    It pops from its own queues and from those of the next `share_queue_num` clients, so that a slow client blocks no
    queue.  If `share_queue_num` is 0 or less, or at least the number of other clients, each client pops from all
    queues of all brokers.
    """
    if share_queue_num <= 0 or share_queue_num >= len(client_ids) - 1:
        return list(dict.fromkeys(MessageQueue(queue.topic, queue.broker_name, ALL_QUEUES) for queue in queues))
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if len(client_ids) > len(queues):
        return [queues[index % len(queues)]]
    sharers = [client_ids[(index + step) % len(client_ids)] for step in range(share_queue_num + 1)]
    shares = (strategy.allocate(sharer, queues, client_ids) for sharer in sharers)
    return list(dict.fromkeys(queue for share in shares for queue in share))
