"""Lag of a group: what is asked for costs as much as it is, not as there are lite topics."""

from random import Random

import pytest

from broker.lite.group_lag import GroupLag
from sprocket.common.next_turn import at_once

_NOW_MS = 1_700_000_000_000


def test_the_sum_and_the_largest_lags_follow_every_change() -> None:
    lag = GroupLag()
    for queue, count in (("a", 3), ("b", 1), ("c", 7), ("a", 4), ("b", 0), ("d", 4)):
        lag.set(queue, count, _NOW_MS)
    assert (lag.total, len(lag), lag.of("a"), lag.of("b")) == (15, 3, 4, 0)
    assert lag.largest(2) == ["c", "a"]
    assert (lag.largest(0), lag.largest(9)) == ([], ["c", "a", "d"])


def test_the_oldest_message_is_found_although_its_lite_topic_got_newer_ones_and_was_read() -> None:
    lag, times = GroupLag(), {"old": _NOW_MS, "read": _NOW_MS - 50_000, "new": _NOW_MS + 60_000}
    for queue in ("read", "old", "new"):
        lag.set(queue, 1, times[queue])
    lag.set("read", 2, _NOW_MS + 20_000)
    lag.set("read", 1)
    times["read"] = _NOW_MS + 20_000  # its first message is consumed
    assert at_once(lag.oldest(2, times.__getitem__)) == [(_NOW_MS, "old"), (_NOW_MS + 20_000, "read")]
    times["new"] = _NOW_MS - 90_000
    lag.set("new", 2)  # the group was moved back to an older message
    assert at_once(lag.oldest(1, times.__getitem__)) == [(_NOW_MS - 90_000, "new")]


def test_the_oldest_messages_are_found_without_a_look_at_all_lite_topics() -> None:
    lag, looks = GroupLag(), 0
    times = {f"q{number}": _NOW_MS + number * 1_000 for number in range(10_000)}

    def time_of(queue: str) -> int:
        nonlocal looks
        looks += 1
        return times[queue]

    for queue, time_ms in times.items():
        lag.set(queue, 1, time_ms)
    assert [queue for _, queue in at_once(lag.oldest(3, time_of))] == ["q0", "q1", "q2"]
    assert looks < 50
    lag.set("q0", 0)
    assert [queue for _, queue in at_once(lag.oldest(3, time_of))] == ["q1", "q2", "q3"]
    assert looks < 100


@pytest.mark.parametrize("seed", range(20))
def test_any_changes_give_what_a_search_of_all_lite_topics_gives(seed: int) -> None:
    random, lag = Random(seed), GroupLag()
    stored: dict[str, list[int]] = {f"q{number}": [] for number in range(12)}
    read = dict.fromkeys(stored, 0)
    now_ms = _NOW_MS
    for _ in range(400):
        now_ms += random.randrange(30_000)
        queue = random.choice(list(stored))
        what = random.random()
        if what < 0.5:
            stored[queue].append(now_ms - random.randrange(5_000))
            stored[queue].sort()
        elif what < 0.9:
            read[queue] = random.randint(read[queue], len(stored[queue]))
        else:
            read[queue] = random.randint(0, read[queue])
        lag.set(queue, len(stored[queue]) - read[queue], now_ms if what < 0.5 else 0)
        wanted = {name: stored[name][read[name]] for name in stored if read[name] < len(stored[name])}
        assert lag.total == sum(len(stored[name]) - read[name] for name in stored)
        if random.random() < 0.2:
            count = random.randint(1, 5)
            found = at_once(lag.oldest(count, wanted.__getitem__))
            assert [time_ms for time_ms, _ in found] == sorted(wanted.values())[:count]
            assert [lag.of(name) for name in lag.largest(count)] == sorted(map(lag.of, stored), reverse=True)[
                : min(count, len(wanted))
            ]
