"""Which queues each consumer of a group takes from, as the broker decides it.  Pure.

Source: RocketMQ 5.3.3, `QueryAssignmentProcessor.doLoadBalance`, `allocate4Pop`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sprocket.client.consume.allocation import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from sprocket.remoting.bodies.client import MessageQueue

# By what `AllocateMessageQueueStrategy.getName` says.  RocketMQ's broker knows the first two; the others of its
# client (CONFIG, MACHINE_ROOM, MACHINE_ROOM_NEARBY) rest on what only the client is configured with.
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
    """The queues that `client_id` pops from; both lists are sorted.

    They are its own and those of the `share_queue_num` clients behind it, so that queues outlive a slow
    client.  Not above 0, or as many as there are others: everybody pops from all queues of every broker.
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
