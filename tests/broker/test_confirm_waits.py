"""Answers that wait for a flush."""

from collections.abc import Callable

from broker.confirm_waits import ConfirmWaits
from sprocket.common.clock import ManualClock
from sprocket.common.errors import DiskFailed, StoreError
from tests.broker.loop_timer import ManualTimers


class Store:
    """Confirms by hand."""

    def __init__(self) -> None:
        self.confirm_offset = 0
        self.waiting: list[tuple[int, Callable[[StoreError | None], None]]] = []

    def when_confirmed(self, physical_offset: int, callback: Callable[[StoreError | None], None]) -> None:
        if physical_offset <= self.confirm_offset:
            callback(None)
        else:
            self.waiting.append((physical_offset, callback))

    def confirm(self, offset: int, error: StoreError | None = None) -> None:
        self.confirm_offset = offset
        for end, callback in self.waiting:
            if end <= offset or error is not None:
                callback(error)


class Waiting:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.store = Store()
        self.waits = ConfirmWaits(self.store, self.clock, self.timers.call_later)
        self.answers: list[tuple[int, StoreError | None, bool]] = []

    def wait(self, offset: int) -> None:
        self.waits.wait(offset, 5000, lambda error, timed_out: self.answers.append((offset, error, timed_out)))


def test_what_is_confirmed_is_answered_at_once() -> None:
    waiting = Waiting()
    waiting.store.confirm_offset = 10
    waiting.wait(10)
    assert waiting.answers == [(10, None, False)]
    assert waiting.timers.pending == []


def test_a_confirmation_answers_those_it_covers_once() -> None:
    waiting = Waiting()
    waiting.wait(10)
    waiting.wait(20)
    waiting.store.confirm(15)
    assert waiting.answers == [(10, None, False)]
    waiting.timers.advance(60)
    waiting.store.confirm(30)
    assert waiting.answers == [(10, None, False), (20, None, True)]
    assert len(waiting.waits) == 0


def test_time_runs_for_each_from_its_own_start() -> None:
    waiting = Waiting()
    waiting.wait(10)
    waiting.timers.advance(3)
    waiting.wait(20)
    waiting.timers.advance(2.5)
    assert waiting.answers == [(10, None, True)]
    waiting.timers.advance(2.5)
    assert waiting.answers == [(10, None, True), (20, None, True)]
    assert waiting.timers.most_pending == 1


def test_a_failure_reaches_everyone() -> None:
    waiting = Waiting()
    waiting.wait(10)
    waiting.wait(20)
    error = DiskFailed("EIO")
    waiting.store.confirm(0, error)
    assert waiting.answers == [(10, error, False), (20, error, False)]
