"""Held table: one timer for all held requests, and no more than a slice of time for each of its calls."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from broker.longpolling.held_table import HeldTable
from sprocket.common.next_turn import SLICE_S
from sprocket.remoting.command import Request
from tests.broker.loop_timer import ManualTimers
from tests.clock import ManualClock

_COST_S = 0.4 * SLICE_S


@dataclass(eq=False)
class One:
    request: Request[Any] | None
    channel_id: int
    deadline: float


class Rig:
    """A table; to take a request out of it needs `cost_s`."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.left: list[One] = []
        self.expired: list[One] = []
        self.cost_s = cost_s
        self.table = HeldTable[One](self.clock, self.timers.call_later, self.expire, 0.05)

    def expire(self, one: One) -> None:
        self.clock.advance(self.cost_s)
        self.left.append(one)
        if self.table.take(one) is not None:
            self.expired.append(one)

    def hold(self, seconds: float, channel: int = 1) -> One:
        request: Request[Any] = Request(code=11)
        request.channel = SimpleNamespace(id=channel)
        one = One(request, channel, self.clock.monotonic() + seconds)
        self.table.add(one)
        return one

    def run_timer(self) -> int:
        """Run the one timer that is set when it is due; return how many requests have left."""
        before = len(self.left)
        (timer,) = self.timers.pending
        self.clock.advance(max(0.0, timer.at - self.clock.monotonic()))
        self.timers.turn()
        return len(self.left) - before


def test_each_expires_at_its_time_by_one_timer() -> None:
    rig = Rig()
    late, early = rig.hold(3), rig.hold(1)
    rig.timers.advance(0.99)
    assert rig.expired == []
    rig.timers.advance(0.1)
    assert rig.expired == [early]
    rig.timers.advance(2)
    assert rig.expired == [early, late]
    assert (rig.timers.max_pending, rig.timers.pending, len(rig.table)) == (1, [], 0)


def test_a_deadline_that_moves_nearer_counts_once() -> None:
    rig = Rig()
    one = rig.hold(10)
    rig.table.move(one, rig.clock.monotonic() + 2)
    rig.timers.advance(2.1)
    assert rig.expired == [one]
    rig.timers.advance(20)
    assert rig.expired == [one]


def test_what_is_answered_neither_expires_nor_is_kept() -> None:
    rig = Rig()
    for _ in range(1000):
        one = rig.hold(5)
        assert rig.table.take(one) is not None
        assert rig.table.take(one) is None
        assert (len(rig.table), rig.table.count(1), rig.table.all()) == (0, 0, [])
    rig.timers.advance(6)
    assert rig.left == [] and rig.timers.pending == []


def test_closed_it_tells_nobody() -> None:
    rig = Rig()
    rig.hold(1)
    rig.table.close()
    rig.timers.advance(2)
    rig.hold(1)
    rig.table.drop_channel(1)
    assert rig.expired == [] and rig.timers.pending == []


def test_many_that_expire_together_share_the_loop_with_other_work() -> None:
    rig = Rig(_COST_S)
    for _ in range(8):
        rig.hold(1)
    counts = []
    while len(rig.table):
        counts.append(rig.run_timer())
    assert counts == [3, 3, 2]
    assert rig.expired == rig.left and rig.timers.pending == []


def test_what_is_held_again_while_it_expires_waits_again() -> None:
    rig = Rig()
    again: list[One] = []
    expire = rig.expire

    def hold_again(one: One) -> None:
        expire(one)
        if not again:
            again.append(rig.hold(0.01))

    rig.table = HeldTable[One](rig.clock, rig.timers.call_later, hold_again, 0.05)
    first = rig.hold(1)
    rig.timers.advance(2)
    assert rig.expired == [first, *again] and rig.timers.max_pending == 1


def test_many_requests_of_a_closed_connection_leave_in_later_turns_and_get_no_answer() -> None:
    rig = Rig(_COST_S)
    gone = [rig.hold(5, channel=2) for _ in range(100)]
    stays = rig.hold(1)
    rig.table.drop_channel(2)
    assert rig.left == [], "nothing leaves in the turn in which the connection is closed"
    assert not rig.table.is_open(gone[0]) and rig.table.is_open(stays) and rig.table.all() == [stays]
    counts = []
    while rig.left != gone:
        counts.append(rig.run_timer())
    assert max(counts) == 3
    assert rig.expired == [] and (len(rig.table), rig.table.dropped) == (1, 0)
    rig.timers.advance(2)
    assert rig.expired == [stays]
    rig.timers.advance(6)
    assert rig.left == [*gone, stays] and rig.timers.pending == []


def test_those_that_shall_expire_soon_come_first() -> None:
    rig = Rig()
    first, second, third = rig.hold(1), rig.hold(9), rig.hold(9)
    rig.table.expire_soon([third, second])
    assert rig.expired == []
    rig.timers.advance(2)
    assert rig.expired == [third, second, first]


def test_neither_deadlines_nor_those_that_shall_expire_soon_keep_the_others_waiting() -> None:
    rig = Rig(_COST_S)
    quiet = rig.hold(1)
    rig.clock.advance(2)
    turns = 0
    while quiet.request is not None:
        # More in each turn than its slice removes.
        rig.table.expire_soon([rig.hold(9) for _ in range(8)])
        rig.timers.turn()
        turns += 1
        assert turns < 3
    soon = rig.hold(9)
    rig.table.expire_soon([soon])
    turns = 0
    while soon.request is not None:
        for _ in range(8):
            rig.hold(0)
        rig.clock.advance(0.1)
        rig.timers.turn()
        turns += 1
        assert turns < 30


def test_a_late_hold_of_a_closed_connection_does_not_open_it_again() -> None:
    rig = Rig()
    old = rig.hold(5, channel=2)
    rig.table.drop_channel(2)
    late = rig.hold(5, channel=2)
    assert (rig.table.is_open(old), rig.table.is_open(late)) == (False, True)
    assert rig.table.take(old) is None
    assert rig.table.all() == [late]
    assert (len(rig.table), rig.table.dropped) == (1, 0)


def test_requests_of_closed_connections_are_counted_apart() -> None:
    rig = Rig()
    for channel in (1, 2, 2):
        rig.hold(5, channel=channel)
    rig.table.drop_channel(2)
    assert (len(rig.table), rig.table.dropped) == (1, 2)
    rig.run_timer()
    assert (len(rig.table), rig.table.dropped) == (1, 0)
