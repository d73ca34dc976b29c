"""Work in steps, some in each turn of the loop."""

from broker.turns import run_in_turns
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
