"""Where a group goes on in another cluster, by the origins of messages."""

from collections.abc import Sequence
from random import Random

import pytest

from replicate.protocol.offset_map import MAX_RUNS
from replicate.protocol.origins import MAX_STREAMS, Origins, Streams, moved

_CLUSTERS = {"a", "b", "c"}


def read(queue: Sequence[tuple[str, int] | None], begin: int = 0) -> Streams:
    """Return the streams of a queue of messages (stream, number), as it was read from `begin` on."""
    origins = Origins.from_offset(begin)
    for offset, origin in enumerate(queue):
        origins.note(offset, origin)
    return origins.streams


def _many(seed: int, count: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return two queues of the same messages of three streams, merged in another way."""
    random = Random(seed)
    merged = []
    for _ in range(2):
        left = {name: iter(range(count)) for name in ("a/0/x", "b/0/x", "c/0/x")}
        queue: list[tuple[str, int]] = []
        while left:
            name = random.choice(sorted(left))
            for _ in range(random.randint(1, 5)):
                number = next(left[name], None)
                if number is None:
                    del left[name]
                    break
                queue.append((name, number))
        merged.append(queue)
    return merged[0], merged[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_group_gets_the_first_message_that_it_has_not_consumed(seed: int) -> None:
    here, there = _many(seed, 40)
    streams, others = read(here), read(there)
    for offset in range(len(here) + 1):
        consumed = set(here[:offset])
        wanted = next((place for place, each in enumerate(there) if each not in consumed), len(there))
        assert moved([(streams, offset)], others, _CLUSTERS) == wanted


def test_a_long_history_is_bounded_and_repeats_little_more_than_a_group_is_behind() -> None:
    here = [(name, number) for number in range(4000) for name in ("a/0/x", "b/0/x")]
    there = [(name, number) for number in range(4000) for name in ("b/0/x", "a/0/x")]
    streams, others, count = read(here), read(there), len(here)
    assert max(len(runs) for runs in streams.runs.values()) <= MAX_RUNS
    for offset in (*range(0, count, 97), *range(count - 20, count + 1)):
        wanted = offset // 2 * 2
        found = moved([(streams, offset)], others, _CLUSTERS)
        assert found is not None
        assert 0 <= 4 * (wanted - found) <= 5 * (count - offset) + 8


def test_what_was_not_read_counts_as_not_consumed() -> None:
    here, there = [("a/0/x", 0), ("b/0/x", 0)], [("a/0/x", 0), ("c/0/x", 0), ("b/0/x", 0)]
    assert moved([(read(here), 2)], read(there), _CLUSTERS) == 1
    assert moved([(read(here[:1]), 2)], read([here[0], here[1]]), _CLUSTERS) == 1
    assert moved([(read(here), 2)], read(there[:1]), _CLUSTERS) == 1


def test_messages_of_clusters_that_do_not_come_here_are_not_counted() -> None:
    here, there = [("a/0/x", 0)], [("c/0/x", 0), ("a/0/x", 0), ("c/0/x", 1)]
    assert moved([(read(here), 1)], read(there), {"a"}) == 3


def test_queues_that_are_copied_into_one_are_counted_together() -> None:
    one, other = [("a/0/x", 0), ("a/0/x", 1)], [("a/0/y", 0), ("a/0/y", 1)]
    there = [("a/0/x", 0), ("a/0/y", 0), ("a/0/y", 1), ("a/0/x", 1)]
    assert moved([(read(one), 2), (read(other), 1)], read(there), _CLUSTERS) == 2
    assert moved([(read(one), 1), (read(other), 2)], read(there), _CLUSTERS) == 3


def test_a_group_before_what_was_read_has_no_place() -> None:
    queue = [("a/0/x", number) for number in range(10)]
    assert moved([(read(queue, 5), 4)], read(queue), {"a"}) is None
    assert moved([(read(queue), 3)], read(queue, 5), {"a"}) is None
    assert moved([(read(queue), 5)], read(queue, 5), {"a"}) is None
    assert moved([(read(queue, 5), 7)], read(queue, 5), {"a"}) == 7


def test_a_stream_that_was_only_before_what_was_read_there_gives_no_place() -> None:
    a, c = ([(name, number) for number in range(5)] for name in ("a/0/x", "c/0/x"))
    here, there = [*a, *c], [*c, *a]
    assert moved([(read(here), 7)], read(there, 6), {"a", "c"}) is None
    assert moved([(read(here), 7)], read(there, 6), {"a"}) == 10
    # Of c nothing was read at all: what lies before may be all of it.
    assert moved([(read(a), 5)], read(there, 6), {"a", "c"}) is None


def test_what_the_queue_has_no_more_need_not_be_read() -> None:
    queue = [("a/0/x", number) for number in range(10)]
    there = Origins(read(queue, 5))
    there.skip(4)
    assert moved([(read(queue), 5)], there.streams, {"a", "c"}) is None
    there.skip(5)
    assert moved([(read(queue), 5)], there.streams, {"a", "c"}) == 5


def test_after_a_cluster_lost_its_end_nothing_of_before_is_missed() -> None:
    lost, again = [("c/0/x", number) for number in range(11)], [("c/0/x", number) for number in range(5, 9)]
    queue = [*lost, *again]
    for offset in range(len(queue) + 1):
        assert moved([(read(queue), offset)], read(queue), {"c"}) == min(offset, 5)
    # It has numbers that are new again: the queues are exact from there on.
    queue += [("c/0/x", number) for number in range(9, 14)]
    for offset in range(len(queue) + 1):
        found = moved([(read(queue), offset)], read(queue), {"c"})
        assert found == (offset if offset <= 5 or offset > 16 else 5)


@pytest.mark.parametrize("seed", range(20))
def test_clusters_that_lose_their_ends_let_a_group_repeat_and_skip_nothing(seed: int) -> None:
    random = Random(seed)
    sent: dict[str, list[int]] = {}
    for name in ("a/0/x", "b/0/x", "c/0/x"):
        numbers = sent.setdefault(name, [])
        for _ in range(80):
            again = random.randint(1, 12) if random.random() < 0.05 else 0
            numbers.append(max(0, numbers[-1] + 1 - again) if numbers else 0)
    queues = []
    for _ in range(2):
        names = [name for name, numbers in sent.items() for _ in numbers]
        random.shuffle(names)
        places = {name: iter(enumerate(numbers)) for name, numbers in sent.items()}
        queues.append([(name, *next(places[name])) for name in names])
    here, there = queues
    for end in (len(here), 100):
        streams = read([(name, number) for name, _, number in here[:end]])
        others = read([(name, number) for name, _, number in there[: random.randint(0, 240)]])
        for offset in range(end + 1):
            consumed = set(here[:offset])
            wanted = next((place for place, each in enumerate(there[: others.end]) if each not in consumed), others.end)
            found = moved([(streams, offset)], others, _CLUSTERS)
            assert found is not None
            assert found <= wanted


def test_a_group_that_consumed_lost_messages_gets_those_that_have_their_numbers_now() -> None:
    lost, again = [("c/0/x", number) for number in range(12)], [("c/0/x", number) for number in range(5, 20)]
    # None of the new ones has come here, and more of the lost ones than there.
    for count in (9, 10, 12):
        for end in (11, 15, len(again) + 10):
            assert moved([(read(lost), count)], read([*lost[:10], *again][:end]), {"c"}) == 5
    # In the cluster itself.
    own = Origins(read(lost))
    own.lose(5, "c/0/x")
    for offset in range(5, 20):
        own.note(offset, ("c/0/x", offset))
    assert moved([(read(lost), 12)], own.streams, {"c"}) == 5
    # Until the messages of that time are gone.
    own.skip(6)
    assert moved([(read(lost), 12)], own.streams, {"c"}) == 12


def test_a_stream_in_two_queues_counts_where_it_is_consumed_least() -> None:
    queue = [("a/0/x", number) for number in range(6)]
    for offsets in ((2, 5), (5, 2)):
        assert moved([(read(queue), offset) for offset in offsets], read(queue), {"a"}) == 2


def test_a_group_before_a_message_without_an_origin_has_no_place() -> None:
    queue: list[tuple[str, int] | None] = [("a/0/x", 0), None, ("a/0/x", 2), ("a/0/x", 3)]
    whole: list[tuple[str, int] | None] = [("a/0/x", number) for number in range(4)]
    assert [moved([(read(queue), offset)], read(whole), {"a"}) for offset in range(5)] == [None, None, 2, 3, 4]
    assert [moved([(read(whole), offset)], read(queue), {"a"}) for offset in range(5)] == [None, None, None, 3, 4]


def test_more_streams_than_there_can_be_make_a_queue_unknown_and_not_large() -> None:
    streams = read([(f"a/{number}/x", 0) for number in range(3 * MAX_STREAMS)])
    assert len(streams.runs) <= MAX_STREAMS
    assert streams.begin > MAX_STREAMS


@pytest.mark.parametrize("end", [0, 10, 700, 1999, 2990])
def test_after_a_cut_the_queue_is_read_again_as_far_as_it_is_not_known(end: int) -> None:
    here, there = _many(2, 1000)
    origins = Origins(read(here))
    origins.cut(end)
    assert origins.end <= end
    for offset in range(origins.end, end):
        origins.note(offset, here[offset])
    assert origins.end == end
    consumed = set(here[:end])
    wanted = next(place for place, each in enumerate(there) if each not in consumed)
    found = moved([(origins.streams, end)], read(there), _CLUSTERS)
    assert found is not None
    assert found <= wanted
