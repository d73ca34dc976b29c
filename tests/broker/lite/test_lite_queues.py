"""Light queues of lite topics by parent, the longest idle one first."""

from broker.lite.lite_queues import UNKNOWN, LiteQueues
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


def test_the_longest_idle_queues_come_first() -> None:
    queues = LiteQueues()
    for name, at in (("a", 10), ("b", 20), ("c", 30), ("a", 40)):
        queues.arrived(_q(name), at)
    assert list(queues.idle_since("P", 35)) == [_q("b"), _q("c")]
    assert queues.last_ms(_q("a")) == 40
    assert queues.last_ms(_q("x")) is None


def test_times_from_before_the_start_are_learned_late_and_a_new_message_counts() -> None:
    queues = LiteQueues()
    for name in ("a", "b", "c"):
        queues.arrived(_q(name), UNKNOWN)
    queues.arrived(_q("b"), 100)
    assert list(queues.unknown("P")) == [_q("a"), _q("c")]
    queues.learned("P", [(70, _q("a")), (60, _q("c")), (50, _q("b")), (1, _q("gone"))])
    assert list(queues.unknown("P")) == []
    assert list(queues.idle_since("P", 101)) == [_q("c"), _q("a"), _q("b")]
    assert queues.last_ms(_q("b")) == 100
