"""Work in turns of the loop: in steps, or when it is due."""

from broker.turns import NextTurn, run_in_turns
from tests.broker.loop_timer import ManualTimers
from tests.clock import ManualClock


def test_steps_run_some_in_each_turn() -> None:
    timers, done = ManualTimers(ManualClock()), list[int]()
    run_in_turns(map(done.append, range(7)), 3, timers.call_later)
    counts = [len(done)]
    while timers.pending:
        timers.turn()
        counts.append(len(done))
    assert counts == [3, 6, 7]


def test_what_is_done_at_once_sets_no_timer() -> None:
    timers, done = ManualTimers(ManualClock()), list[int]()
    run_in_turns(map(done.append, range(2)), 3, timers.call_later)
    assert done == [0, 1] and timers.pending == []


def test_the_earliest_time_counts_and_a_turn_is_one() -> None:
    timers, turns = ManualTimers(clock := ManualClock()), list[float]()
    began = clock.monotonic()
    turn = NextTurn(lambda: turns.append(clock.monotonic() - began), clock.monotonic, timers.call_later)
    for seconds in (5.0, 2.0, 3.0):
        turn.wake_in(seconds)
    timers.advance(10.0)
    assert turns == [2.0]
    turn.wake_in(-1.0)
    timers.turn()
    assert turns == [2.0, 10.0]


def test_it_sleeps_in_steps_and_not_after_it_was_cancelled() -> None:
    timers, turns = ManualTimers(clock := ManualClock()), list[float]()
    turn = NextTurn(lambda: turns.append(clock.monotonic()), clock.monotonic, timers.call_later, 1.0)
    turn.wake_in(60.0)
    timers.advance(1.0)
    assert len(turns) == 1
    turn.wake_in(0.5)
    turn.cancel()
    timers.advance(1.0)
    assert len(turns) == 1
