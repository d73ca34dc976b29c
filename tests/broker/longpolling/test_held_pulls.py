"""Held pulls: which message wakes which pull, and when."""

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from broker.filter.subscription_filter import TagFilter
from broker.longpolling import held_pulls as long_polling
from broker.longpolling.held_pulls import PASSED_BY_S, HeldPulls
from sprocket.remoting.command import Request
from store.queue.record_filter import RecordFilter
from tests.broker.loop_timer import ManualTimers
from tests.clock import ManualClock


class Channel:
    def __init__(self, number: int) -> None:
        self.id = number


class Queues:
    """Ends and tags codes of queues."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, int], list[int]] = {}
        self.entries_per_file = 1000

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.codes.get((topic, queue_id), ()))

    def tags_codes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> npt.NDArray[np.int64]:
        end_of_file = (first_offset // self.entries_per_file + 1) * self.entries_per_file
        return np.array(self.codes[topic, queue_id][first_offset : min(end_offset, end_of_file)], np.int64)

    def has_wanted(self, topic: str, queue_id: int, first_offset: int, end_offset: int, wants: RecordFilter) -> bool:
        """A message's record is its tags code in one byte."""
        records = (bytes([code]) for code in self.codes[topic, queue_id][first_offset:end_offset])
        return any(wants.matches(record) for record in records)


class Sevens(TagFilter):
    """A filter of one pull, to which a test may refer without keeping it."""

    def __init__(self) -> None:
        super().__init__([7])


class Held:
    """Held pulls with everything around them moved by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.queues = Queues()
        self.answered: list[int] = []
        self.answer_with: Callable[[Request[Any]], object] = lambda request: self.answered.append(request.opaque)
        self.overworked: set[int] = set()  # ids of channels that may not look now
        self.pulls = HeldPulls(self.queues, self.clock, self.timers.call_later, self._looks)

    def _looks(self, channel: Channel, look: Callable[[], bool]) -> bool:
        return channel.id not in self.overworked and look()

    def answer(self, request: Request[Any]) -> None:
        self.answer_with(request)

    def hold(
        self,
        opaque: int,
        queue_id: int = 0,
        offset: int = 0,
        matches: TagFilter | RecordFilter | None = None,
        timeout_s: float = 15.0,
        channel: int = 1,
    ) -> bool:
        request: Request[Any] = Request(code=11, opaque=opaque)
        request.channel = Channel(channel)
        return self.pulls.hold(request, "T", queue_id, offset, matches, timeout_s, self.answer)

    def arrive(self, *codes: int, queue_id: int = 0) -> None:
        queue = self.queues.codes.setdefault(("T", queue_id), [])
        first = len(queue)
        queue += codes
        arrived: Any = SimpleNamespace(topic="T", queue_id=queue_id)
        self.pulls.arrived([(arrived, first, len(queue))])


def test_what_comes_behind_the_end_of_a_file_of_the_queue_wakes_too() -> None:
    held = Held()
    held.queues.entries_per_file = 4
    held.hold(1, matches=TagFilter([5]))
    held.arrive(1, 2, 3)
    assert held.answered == []
    held.arrive(4, 5)
    assert held.answered == [1]


def test_an_arrival_wakes_the_pulls_of_its_queue_alone() -> None:
    held = Held()
    held.hold(1)
    held.hold(2)
    held.hold(3, queue_id=1)
    held.arrive(7)
    assert held.answered == [1, 2]
    held.arrive(7)
    assert held.answered == [1, 2]
    assert len(held.pulls) == 1


def test_of_many_pulls_of_a_queue_some_are_answered_at_once_and_the_others_in_later_turns() -> None:
    held = Held()
    for number in range(100):
        held.hold(number, channel=2 if number == 99 else 1)
    held.arrive(7)
    at_once = len(held.answered)
    assert 0 < at_once < 100 and len(held.pulls) == 100 - at_once
    held.arrive(7)
    assert len(held.answered) == at_once
    held.pulls.drop_channel(2)
    held.timers.advance(0)
    assert held.answered == list(range(99)) and len(held.pulls) == 0


def test_an_arrival_before_the_offset_wakes_nobody() -> None:
    held = Held()
    held.hold(1, offset=2)
    held.arrive(7, 7)
    assert held.answered == []
    held.arrive(7)
    assert held.answered == [1]


def test_only_a_matching_tag_wakes() -> None:
    held = Held()
    held.hold(1, matches=TagFilter([5, 6]))
    held.hold(2, matches=TagFilter([9]))
    held.arrive(7, 6)
    assert held.answered == [1]


def test_an_arrival_is_compared_with_a_filter_once_however_many_pulls_have_it() -> None:
    class Counted(TagFilter):
        calls = 0

        def matches_any(self, tags_codes: npt.NDArray[np.int64]) -> bool:
            Counted.calls += 1
            return super().matches_any(tags_codes)

    held = Held()
    few, none = Counted([5, 6]), Counted([9])
    for opaque in range(6):
        held.hold(opaque, matches=none if opaque % 2 else few)
    held.arrive(7, 6)
    assert (held.answered, Counted.calls) == ([0, 2, 4], 2)


def test_only_a_wanted_record_wakes() -> None:
    held = Held()
    held.hold(1, matches=RecordFilter(lambda record: record == b"\x06"))
    held.hold(2, matches=RecordFilter(lambda record: record == b"\x09"))
    held.arrive(7, 6)
    assert held.answered == [1]
    held.timers.advance(PASSED_BY_S + 0.1)
    assert held.answered == [1, 2], "its offset moves on"


def test_sql_is_not_asked_for_who_has_used_up_its_share_and_the_pull_is_answered_soon() -> None:
    held = Held()
    held.hold(1, matches=RecordFilter(lambda record: True), channel=1)
    held.hold(2, matches=RecordFilter(lambda record: True), channel=2)
    held.overworked = {1}
    held.arrive(7)
    assert held.answered == [2]
    held.timers.advance(PASSED_BY_S + 0.1)
    assert held.answered == [2, 1]


def test_a_pull_that_messages_passed_by_is_answered_soon_so_that_its_offset_moves() -> None:
    held = Held()
    held.hold(1, matches=TagFilter([5]))
    held.timers.advance(1)
    held.arrive(7)
    held.timers.advance(PASSED_BY_S - 0.1)
    held.arrive(7)  # does not put it off
    assert held.answered == []
    held.timers.advance(0.2)
    assert held.answered == [1]
    held.timers.advance(60)
    assert held.answered == [1]


def test_a_pull_is_answered_when_its_time_is_up() -> None:
    held = Held()
    held.hold(1, timeout_s=15)
    held.timers.advance(5)
    held.hold(2, timeout_s=1)
    held.hold(3, timeout_s=0)
    held.timers.advance(0.9)
    assert held.answered == [3]
    held.timers.advance(0.2)
    assert held.answered == [3, 2]
    held.timers.advance(9)
    assert held.answered == [3, 2, 1]
    assert len(held.pulls) == 0


def test_all_held_pulls_share_one_timer_and_none_is_left_behind() -> None:
    held = Held()
    for opaque in range(1000):
        held.hold(opaque, queue_id=opaque, timeout_s=10 + opaque % 7)
    assert held.timers.max_pending == 1
    held.timers.advance(20)
    assert sorted(held.answered) == list(range(1000))
    assert held.timers.pending == []


def test_answered_pulls_are_not_kept_until_their_time_would_be_up() -> None:
    held = Held()
    held.hold(0, queue_id=1, timeout_s=10)
    alive = weakref.WeakSet[TagFilter]()
    for opaque in range(20_000):
        matches = Sevens()
        alive.add(matches)
        held.hold(opaque, offset=opaque, matches=matches)
        held.arrive(7)
    assert len(held.pulls) == 1
    assert len(alive) < 5000
    held.answered.clear()
    held.timers.advance(11)
    assert held.answered == [0]


def test_who_is_gone_is_forgotten() -> None:
    held = Held()
    held.hold(1, channel=1)
    held.hold(2, channel=2)
    held.pulls.drop_channel(1)
    held.arrive(7)
    held.timers.advance(60)
    assert held.answered == [2]
    assert len(held.pulls) == 0


def test_one_client_cannot_have_any_number_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "MAX_HELD_PER_CHANNEL", 3)
    held = Held()
    assert [held.hold(opaque) for opaque in range(5)] == [True, True, True, False, False]
    assert held.hold(9, channel=2)


def test_a_pull_that_is_held_again_while_it_is_answered_stays() -> None:
    held = Held()
    held.answer_with = lambda request: held.hold(request.opaque + 10)
    held.hold(1)
    held.hold(2)
    held.arrive(7)
    assert len(held.pulls) == 2


def test_the_garbage_collector_follows_no_held_pull() -> None:
    """A full collection among 60,000 held pulls would hold the loop for 100 ms."""
    held = Held()
    request: Request[Any] = Request(code=11)
    request.channel = Channel(1)
    answer = held.answer
    held.hold(0)
    gc.collect()
    before = len(gc.get_objects())
    for queue_id in range(1, 1001):
        assert held.pulls.hold(request, "T", queue_id, 0, None, 15.0, answer)
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_all_are_answered_in_steps() -> None:
    held = Held()
    for opaque in range(3):
        held.hold(opaque, queue_id=opaque, channel=opaque)
    steps = held.pulls.answer_all()
    next(steps)
    assert held.answered == [0]
    held.arrive(7, queue_id=1)
    assert [*steps] == [None]
    assert held.answered == [0, 1, 2]
    held.pulls.close()
    assert held.timers.pending == []


def test_from_the_first_answer_of_the_end_on_no_pull_is_held() -> None:
    held = Held()
    held.hold(1)
    held.answer_with = lambda request: held.answered.append(held.hold(request.opaque + 10))
    assert [*held.pulls.answer_all()] == [None]
    held.pulls.close()
    assert not held.hold(2)
    assert held.answered == [False] and len(held.pulls) == 0


def test_a_pull_whose_connection_closes_at_the_end_keeps_nothing_alive() -> None:
    held = Held()
    processor = weakref.ref(held)
    held.hold(1)
    held.pulls.drop_channel(1)
    held.pulls.close()
    del held
    gc.collect()
    assert processor() is None
