"""Which broker gets which logical queue: the least loaded.

Source: RocketMQ 5.3.3, `TopicQueueMappingUtils.MappingAllocator` and `remappingStaticTopic`.  Different here: when the
queues do not divide equally, the brokers that had most keep one more.  RocketMQ may give it to one that had fewest,
which moves more queues than necessary.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping


def least_loaded(loads: Mapping[str, int], count: int, tie: Callable[[str], int]) -> list[str]:
    """Return a broker for each of `count` new queues, one by one that with the fewest queues.

    `loads` has the queues that each broker has already; it must name a broker.  Of equal brokers, that with the
    smallest `tie` gets the queue.
    """
    heap = [(load, tie(broker), broker) for broker, load in loads.items()]
    heapq.heapify(heap)
    chosen = []
    for _ in range(count):
        load, _, broker = heap[0]
        heapq.heapreplace(heap, (load + 1, tie(broker), broker))
        chosen.append(broker)
    return chosen


def moves(leaders: Mapping[int, str], targets: Iterable[str]) -> dict[int, str]:
    """Return the new broker of each logical queue that must move, so that `targets` have equal shares.

    No more queues move than necessary, and no broker both gets and gives queues.
    """
    before = Counter(leaders.values())
    room = Counter(least_loaded(dict.fromkeys(targets, 0), len(leaders), lambda broker: -before[broker]))
    waiting = []
    for number, broker in sorted(leaders.items()):
        if room[broker] > 0:
            room[broker] -= 1
        else:
            waiting.append(number)
    return dict(zip(waiting, sorted(room.elements()), strict=True))
