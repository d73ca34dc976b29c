"""Where a group goes on in another cluster, by the origins of messages."""

from random import Random

import pytest

from replicate.protocol.offset_map import MAX_RUNS
from replicate.protocol.origins import Origins, Streams, moved

_CLUSTERS = {"a", "b", "c"}


def read(queue: list[tuple[str, int]], begin: int = 0) -> Streams:
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
        assert moved([(streams, offset)], others, _CLUSTERS, 0) == wanted


def test_a_long_history_is_bounded_and_repeats_little_more_than_a_group_is_behind() -> None:
    here = [(name, number) for number in range(4000) for name in ("a/0/x", "b/0/x")]
    there = [(name, number) for number in range(4000) for name in ("b/0/x", "a/0/x")]
    streams, others, count = read(here), read(there), len(here)
    assert max(len(runs) for runs in streams.runs.values()) <= MAX_RUNS
    for offset in (*range(0, count, 97), *range(count - 20, count + 1)):
        wanted = offset // 2 * 2
        found = moved([(streams, offset)], others, _CLUSTERS, 0)
        assert 0 <= 4 * (wanted - found) <= 5 * (count - offset) + 8


def test_what_was_not_read_counts_as_not_consumed() -> None:
    here, there = [("a/0/x", 0), ("b/0/x", 0)], [("a/0/x", 0), ("c/0/x", 0), ("b/0/x", 0)]
    assert moved([(read(here), 2)], read(there), _CLUSTERS, 0) == 1
    assert moved([(read(here[:1]), 2)], read([here[0], here[1]]), _CLUSTERS, 0) == 1
    assert moved([(read(here), 2)], read(there[:1]), _CLUSTERS, 0) == 1


def test_messages_of_clusters_that_do_not_come_here_are_not_counted() -> None:
    here, there = [("a/0/x", 0)], [("c/0/x", 0), ("a/0/x", 0), ("c/0/x", 1)]
    assert moved([(read(here), 1)], read(there), {"a"}, 0) == 3


def test_queues_that_are_copied_into_one_are_counted_together() -> None:
    one, other = [("a/0/x", 0), ("a/0/x", 1)], [("a/0/y", 0), ("a/0/y", 1)]
    there = [("a/0/x", 0), ("a/0/y", 0), ("a/0/y", 1), ("a/0/x", 1)]
    assert moved([(read(one), 2), (read(other), 1)], read(there), _CLUSTERS, 0) == 2
    assert moved([(read(one), 1), (read(other), 2)], read(there), _CLUSTERS, 0) == 3


def test_before_what_was_read_the_map_of_offsets_counts() -> None:
    queue = [("a/0/x", number) for number in range(10)]
    assert moved([(read(queue, 5), 3)], read(queue), _CLUSTERS, 2) == 0
    assert moved([(read(queue), 3)], read(queue, 5), _CLUSTERS, 2) == 2
    assert moved([(read(queue, 5), 7)], read(queue, 5), _CLUSTERS, 2) == 7


def test_a_stream_that_begins_again_counts_as_it_is_last() -> None:
    here = [("a/0/x", number) for number in range(6)]
    there = [*(("a/0/x", number) for number in range(10)), ("a/0/x", 6), ("a/0/x", 7)]
    assert moved([(read([*here, ("a/0/x", 6)]), 7)], read(there), _CLUSTERS, 0) == 11


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
    found = moved([(origins.streams, end)], read(there), _CLUSTERS, 0)
    assert found <= wanted


def test_a_message_without_an_origin_is_read_and_not_counted() -> None:
    origins = Origins.from_offset(0)
    origins.note(0, None)
    origins.note(1, ("a/0/x", 0))
    origins.skip(9)
    assert (origins.end, origins.streams.runs["a/0/x"][0].source) == (9, 1)
