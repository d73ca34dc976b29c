"""Light queues of lite topics by parent, the longest idle one first."""

import gc

from broker.lite.lite_queues import INTERVAL_MS, LiteQueues
from sprocket.remoting.message.lite_topics import lite_queue


def _q(name: str, parent: str = "P") -> str:
    return lite_queue(parent, name)


def test_queues_are_known_by_parent_and_others_are_ignored() -> None:
    queues = LiteQueues()
    for name in (_q("a"), _q("b"), _q("a", "Other"), "%LMQ%plain", "%LMQ%$P", "%LMQ%$P$a$b"):
        queues.arrived(name, 5)
    assert list(queues.of_parent("P")) == [_q("a"), _q("b")]
    assert queues.parents() == ["P", "Other"]
    queues.forget(_q("a", "Other"))
    queues.forget("%LMQ%plain")
    assert (queues.parents(), queues.count("P"), queues.count("Other")) == (["P"], 2, 0)


def test_the_queues_of_the_oldest_interval_come_first_and_only_when_it_has_ended() -> None:
    queues = LiteQueues()
    for name, minute in (("a", 10), ("b", 20), ("c", 20), ("d", 30), ("a", 40)):
        queues.arrived(_q(name), minute * INTERVAL_MS + 5)
    assert queues.idle_since("P", 21 * INTERVAL_MS - 1) == []
    assert queues.idle_since("P", 35 * INTERVAL_MS) == [_q("b"), _q("c")]
    queues.forget(_q("b"))
    queues.forget(_q("c"))
    assert queues.idle_since("P", 35 * INTERVAL_MS) == [_q("d")]
    assert queues.is_idle_since(_q("d"), 31 * INTERVAL_MS)
    assert not queues.is_idle_since(_q("a"), 40 * INTERVAL_MS)
    assert not queues.is_idle_since(_q("x"), 40 * INTERVAL_MS)


def test_times_from_before_the_start_are_learned_late_and_a_new_message_counts() -> None:
    queues = LiteQueues()
    queues.found([_q(name) for name in ("a", "b", "c")])
    queues.arrived(_q("b"), 100 * INTERVAL_MS)
    assert queues.unknown("P") == [_q("a"), _q("c")]
    for name, minute in (("a", 70), ("c", 60), ("b", 50), ("gone", 1)):
        queues.learned(_q(name), minute * INTERVAL_MS)
    assert queues.unknown("P") == []
    order = []
    while idle := queues.idle_since("P", 101 * INTERVAL_MS):
        order += idle
        for name in idle:
            queues.forget(name)
    assert order == [_q("c"), _q("a"), _q("b")]


def test_queues_that_get_messages_for_days_take_no_more_memory_each_day() -> None:
    queues = LiteQueues()
    names = [_q(f"n{number}") for number in range(1000)]
    for minute in range(1, 50):
        for name in names:
            queues.arrived(name, minute * INTERVAL_MS)
    assert queues.count("P") == 1000
    idle = queues.idle_since("P", 60 * INTERVAL_MS)
    assert 0 < len(idle) <= 256
    assert queues.idle_since("P", 49 * INTERVAL_MS) == []
    held = gc.get_referrers(names[0])
    assert sum(isinstance(one, list) for one in held) == 3, "the lists here, and one chunk"
