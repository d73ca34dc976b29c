"""Deadlines: one timer for all held requests."""

from dataclasses import dataclass
from typing import Any

import pytest

from broker.longpolling import deadlines
from broker.longpolling.deadlines import Deadlines
from sprocket.remoting.command import Request
from tests.broker.loop_timer import ManualTimers
from tests.clock import ManualClock


@dataclass
class One:
    request: Request[Any] | None
    deadline: float


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.expired: list[One] = []
        self.deadlines = Deadlines[One](self.clock, self.timers.call_later, self._expire, 0.05)

    def _expire(self, one: One) -> None:
        one.request = None
        self.expired.append(one)

    def hold(self, seconds: float) -> One:
        one = One(Request(code=11), self.clock.monotonic() + seconds)
        self.deadlines.expect(one, 1)
        return one


def test_each_expires_at_its_time_by_one_timer() -> None:
    rig = Rig()
    late, early = rig.hold(3), rig.hold(1)
    rig.timers.advance(0.9)
    assert rig.expired == []
    rig.timers.advance(0.2)
    assert rig.expired == [early]
    rig.timers.advance(2)
    assert rig.expired == [early, late]
    assert (rig.timers.max_pending, rig.timers.pending, len(rig.deadlines)) == (1, [], 0)


def test_a_deadline_that_moves_nearer_counts_once() -> None:
    rig = Rig()
    one = rig.hold(10)
    one.deadline = rig.clock.monotonic() + 2
    rig.deadlines.expect(one, 1)
    rig.timers.advance(2.1)
    assert rig.expired == [one]
    rig.timers.advance(20)
    assert rig.expired == [one]


def test_what_is_answered_neither_expires_nor_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_MAX_STALE", 10)
    rig = Rig()
    for _ in range(1000):
        rig.hold(5).request = None
        assert len(rig.deadlines) <= 13
    rig.timers.advance(6)
    assert rig.expired == []


def test_closed_it_tells_nobody() -> None:
    rig = Rig()
    rig.hold(1)
    rig.deadlines.close()
    rig.timers.advance(2)
    assert rig.expired == []


def test_many_that_expire_together_share_the_loop_with_other_work() -> None:
    rig = Rig()

    def expire(one: One) -> None:
        rig.clock.advance(0.0004)
        rig._expire(one)
        if len(rig.expired) == 1:
            rig.hold(0.01)  # an answer may be held again

    rig.deadlines = Deadlines[One](rig.clock, rig.timers.call_later, expire, 0.05)
    for _ in range(7):
        rig.hold(1)
    calls = []
    while len(rig.expired) < 8:
        (timer,) = rig.timers.pending
        rig.timers.advance(max(0.0, timer.at - rig.clock.monotonic()))
        calls.append(len(rig.expired))
    assert calls == [3, 6, 7, 8] and rig.timers.pending == []
