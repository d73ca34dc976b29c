"""A consumer that follows the responses reads every message of a logical queue once and in order, over any items.

The model is one list of messages for each physical queue.
"""

import random
from dataclasses import dataclass, field

import pytest

from broker.pull.logical_pull import Offsets, logical_offsets, physical_header
from sprocket.remoting.bodies.topic_queue_mapping import UNDECIDED, LogicQueueMappingItem
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.static_topic.item_checks import check_items, find_item
from tests.tiers import seeds

FOUND, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
RETRY, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED
BLOCK = 100


@dataclass
class Physical:
    """One physical queue as a broker has it; messages below `low` have expired."""

    messages: list[int] = field(default_factory=list)
    low: int = 0

    def pull(self, offset: int, count: int) -> tuple[Offsets, list[tuple[int, int]]]:
        """What `PullProcessor` answers: offsets, and messages with their physical offsets."""
        high = len(self.messages)
        if offset < self.low:
            return Offsets(MOVED, self.low, self.low, high), []
        if offset > high:
            return Offsets(MOVED, high, self.low, high), []
        if offset == high:
            return Offsets(NOT_FOUND, offset, self.low, high), []
        end = min(high, offset + count)
        return Offsets(FOUND, end, self.low, high), [(at, self.messages[at]) for at in range(offset, end)]


class Model:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.queues = [Physical()]
        self.items = [LogicQueueMappingItem(0, 0, "b0", 0)]
        self.sent = 0

    def send(self) -> None:
        for _ in range(self.chance.randrange(5)):
            self.queues[-1].messages.append(self.sent)
            self.sent += 1

    def remap(self) -> None:
        """Move the queue, in one step or two: between them the new leader takes messages without logical offsets."""
        if not self.items[-1].is_decided:
            last = self.items[-2]
            begin = ((last.logical_open(len(self.queues[-2].messages)) // BLOCK) + 1) * BLOCK
            self.items[-1].logic_offset = begin
            check_items(self.items)
            return
        number = len(self.queues)
        self.queues.append(Physical())
        self.items.append(LogicQueueMappingItem(number, 0, f"b{number}", UNDECIDED))

    def pull(self, offset: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Code, next offset, and messages with their logical offsets."""
        current = find_item(self.items, offset)
        assert current is not None
        physical = current.physical(offset)
        found, messages = self.queues[current.gen].pull(physical, self.chance.randrange(1, 4))
        shown = logical_offsets(self.items, current, physical, found)
        assert shown.min <= shown.next_begin <= max(shown.max, offset)
        return shown.code, shown.next_begin, [(at + shown.delta, message) for at, message in messages]


@pytest.mark.parametrize("seed", seeds(200, quick=20))
def test_a_consumer_reads_everything_in_order(seed: int) -> None:
    chance = random.Random(seed)
    model, offset, read = Model(chance), 0, list[tuple[int, int]]()
    for _ in range(60):
        chance.choice((model.send, model.send, model.remap))()
        for _ in range(chance.randrange(4)):
            _, offset, messages = model.pull(offset)
            read += messages
    if not model.items[-1].is_decided:
        model.remap()
    for _ in range(500):
        _, offset, messages = model.pull(offset)
        read += messages
    assert [message for _, message in read] == list(range(model.sent))
    logical = [at for at, _ in read]
    assert logical == sorted(set(logical))


@pytest.mark.parametrize("seed", seeds(50, quick=10))
def test_after_deletions_the_consumer_reads_all_that_is_left(seed: int) -> None:
    chance = random.Random(seed)
    model = Model(chance)
    for _ in range(30):
        chance.choice((model.send, model.remap))()
    if not model.items[-1].is_decided:
        model.remap()
    model.send()
    for queue in model.queues:
        queue.low = chance.randrange(len(queue.messages) + 1)
    left = [message for queue in model.queues for message in queue.messages[queue.low :]]
    offset, read = 0, list[int]()
    for _ in range(500):
        _, offset, messages = model.pull(offset)
        read += [message for _, message in messages]
    assert read == left


OLD, NEW = LogicQueueMappingItem(0, 0, "a", 0), LogicQueueMappingItem(1, 3, "b", 100)
WAITING = LogicQueueMappingItem(1, 3, "b", UNDECIDED)


@pytest.mark.parametrize(
    ("items", "current", "requested", "found", "shown"),
    [
        ([OLD, NEW], NEW, 5, Offsets(FOUND, 8, 2, 9), (FOUND, 108, 102, 109, 100)),
        ([OLD, NEW], OLD, 5, Offsets(FOUND, 8, 2, 9), (FOUND, 8, 2, 100, 0)),
        ([OLD, NEW], OLD, 9, Offsets(NOT_FOUND, 9, 2, 9), (RETRY, 100, 100, 100, 100)),
        ([OLD, NEW], OLD, 50, Offsets(MOVED, 9, 2, 9), (RETRY, 100, 100, 100, 100)),
        ([OLD, WAITING], OLD, 9, Offsets(NOT_FOUND, 9, 2, 9), (NOT_FOUND, 9, 2, 9, 0)),
        ([OLD, NEW], OLD, 1, Offsets(MOVED, 2, 2, 9), (MOVED, 2, 2, 100, 0)),
        ([OLD, NEW], NEW, 1, Offsets(MOVED, 2, 2, 9), (RETRY, 102, 102, 109, 100)),
        ([OLD, NEW], NEW, 9, Offsets(NOT_FOUND, 9, 2, 9), (NOT_FOUND, 109, 102, 109, 100)),
        ([OLD, NEW], NEW, 20, Offsets(MOVED, 9, 2, 9), (MOVED, 109, 102, 109, 100)),
        ([OLD, NEW], OLD, 5, Offsets(RETRY, 8, 2, 9), (RETRY, 8, 2, 100, 0)),
        ([NEW], NEW, -3, Offsets(MOVED, 2, 2, 9), (MOVED, 102, 102, 109, 100)),
    ],
)
def test_each_outcome_in_logical_offsets(
    items: list[LogicQueueMappingItem],
    current: LogicQueueMappingItem,
    requested: int,
    found: Offsets,
    shown: tuple[int, ...],
) -> None:
    assert logical_offsets(items, current, requested, found) == shown


def test_the_end_of_an_item_bounds_the_messages() -> None:
    ended = LogicQueueMappingItem(0, 0, "a", 0, end_offset=10)
    header = PullMessageRequestHeader(
        consumer_group="g", topic="t", queue_id=7, queue_offset=8, max_msg_nums=32, sys_flag=7, commit_offset=5,
        suspend_timeout_millis=0, sub_version=0,
    )  # fmt: skip
    here = physical_header(header, [ended, NEW], ended, "a")
    assert (here.queue_id, here.queue_offset, here.max_msg_nums, here.commit_offset) == (0, 8, 2, 5)
    assert (here.lo, here.broker_name, here.sys_flag) == (False, "a", 7)
    there = physical_header(header, [ended, NEW], ended, "b")
    assert (there.sys_flag, there.broker_name) == (4, "a")
