"""Pulls under way at the same time."""

from collections.abc import Sequence
from random import Random

import pytest

from replicate.protocol.read_ahead import MAX_PULLS, AheadBudget, Range, ReadAhead
from sprocket.client.message import MessageQueue, ReceivedMessage
from tests.sim.replicate.sim_cluster import received


def message_at(offset: int) -> ReceivedMessage:
    return received(MessageQueue("T", "b", 0), offset, b"")


def budget(reader_bytes: int) -> AheadBudget:
    return AheadBudget(1 << 40, reader_bytes, lambda: 1)


class _Broker:
    """A queue with the messages of `offsets`, which gives at most `most` of them in a pull."""

    def __init__(self, offsets: Sequence[int], most: int) -> None:
        self.offsets = list(offsets)
        self.most = most

    @property
    def end(self) -> int:
        return self.offsets[-1] + 1

    def answer(self, read: ReadAhead, pull: Range) -> None:
        found = [offset for offset in self.offsets if offset >= pull.offset][: min(self.most, pull.length)]
        read.take(pull, [message_at(offset) for offset in found], found[-1] + 1 if found else pull.offset, self.end)


def _begun(broker: _Broker) -> tuple[ReadAhead, list[Range]]:
    """Return a reader that knows the queue's end, and the pulls that it sends then."""
    read = ReadAhead(0, budget(1 << 30))
    first = read.next_pull()
    assert first is not None and first.waits and read.next_pull() is None
    broker.answer(read, first)
    return read, _sent(read)


def _sent(read: ReadAhead) -> list[Range]:
    found = []
    while (pull := read.next_pull()) is not None:
        found.append(pull)
    return found


def test_what_a_queue_is_known_to_have_is_asked_for_at_once() -> None:
    _, sent = _begun(_Broker(range(1000), 32))
    assert [pull.offset for pull in sent] == list(range(32, 1000, 32))
    assert [pull.length for pull in sent] == [32] * 30 + [8] and not any(pull.waits for pull in sent)


def test_the_number_of_pulls_is_bounded_and_so_are_the_bytes() -> None:
    _, sent = _begun(_Broker(range(10_000), 8))
    assert len(sent) == MAX_PULLS
    read = ReadAhead(0, budget(64 * message_at(0).size_bytes))
    broker, first = _Broker(range(10_000), 8), read.next_pull()
    assert first is not None
    broker.answer(read, first)
    assert sum(pull.length for pull in _sent(read)) == 64


def test_answers_in_any_order_are_read_in_the_order_of_the_queue() -> None:
    broker = _Broker(range(100), 32)
    read, sent = _begun(broker)
    for pull in reversed(sent):
        broker.answer(read, pull)
    assert [message.queue_offset for message in read.ready] == list(range(100))
    assert _sent(read) == [Range(100, 1024, waits=True)]


@pytest.mark.parametrize("seed", range(40))
def test_each_message_is_read_once_whatever_brokers_give(seed: int) -> None:
    random = Random(seed)
    broker = _Broker(sorted(random.sample(range(3000), random.randint(1, 3000))), 32)
    read, got = ReadAhead(0, budget(4000)), list[int]()
    waiting: list[Range] = []
    while len(got) < len(broker.offsets):
        broker.most = random.choice((1, 3, 8, 32, 64))
        waiting += _sent(read)
        assert waiting or read.ready
        if waiting:
            broker.answer(read, waiting.pop(random.randrange(len(waiting))))
        count = random.randint(0, len(read.ready))
        got += [message.queue_offset for message in list(read.ready)[:count]]
        read.drop(count)
    assert got == broker.offsets


def test_many_queues_hold_together_what_their_link_may() -> None:
    size_bytes, count = message_at(0).size_bytes, 200
    total_bytes = 40 * count * size_bytes
    shared = AheadBudget(total_bytes, total_bytes, lambda: count)
    reads, broker = [ReadAhead(0, shared) for _ in range(count)], _Broker(range(100), 32)
    while sum(_answered(read, broker) for read in reads):
        pass
    held_bytes = size_bytes * sum(len(read.ready) for read in reads)
    assert all(read.ready for read in reads)
    assert total_bytes // 2 <= held_bytes <= total_bytes + shared.share_bytes
    assert shared.taken_bytes == held_bytes
    for read in reads:
        read.close()
    assert shared.taken_bytes == 0


def _answered(read: ReadAhead, broker: _Broker) -> int:
    """Answer the pulls of what the queue has; return their number."""
    pulls = [pull for pull in _sent(read) if pull.offset < broker.end]
    for pull in pulls:
        broker.answer(read, pull)
    return len(pulls)
