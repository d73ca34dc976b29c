"""When queues come free, with the clock in the test's hand."""

from pathlib import Path

import pytest

from broker.config.live_config import LiveConfig
from broker.pop import order_locks
from broker.pop.order_locks import OrderLocks, QueueKey
from tests.broker.loop_timer import ManualTimers
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock

KEY = QueueKey("Orders", "CG", 0)


class Rig:
    """Locks whose timer runs when the test says so; `freed` are the queues it told of, and when."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(wall_ms=0)
        self.timers = ManualTimers(self.clock)
        self.config = LiveConfig(broker_config(), store_config(root))
        self.freed: list[tuple[QueueKey, int]] = []
        self.locks = OrderLocks(
            self.config, self.clock, self.timers.call_later, lambda key: self.freed.append((key, self.clock.wall_ms()))
        )


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_queue_comes_free_when_its_time_is_over_and_once(rig: Rig) -> None:
    rig.locks.expect(KEY, 3_000)
    rig.timers.advance(2.9)
    assert rig.freed == []
    rig.timers.advance(0.2)
    assert rig.freed == [(KEY, 3_000)]
    rig.timers.advance(60)
    assert len(rig.freed) == 1
    assert len(rig.locks) == 0
    assert not rig.timers.pending, "an idle one has no timer"


def test_a_later_time_takes_the_place_of_the_one_before(rig: Rig) -> None:
    rig.locks.expect(KEY, 3_000)
    rig.locks.expect(KEY, 5_000)
    rig.timers.advance(4.9)
    assert rig.freed == []
    rig.timers.advance(0.2)
    assert [at for _, at in rig.freed] == [5_000]


def test_an_earlier_time_takes_the_place_of_the_one_before(rig: Rig) -> None:
    rig.locks.expect(KEY, 3_000)
    rig.locks.expect(KEY, 1_000)
    rig.timers.advance(10)
    assert [at for _, at in rig.freed] == [1_000]


def test_a_queue_that_is_free_already_is_told_of_with_the_next_tick(rig: Rig) -> None:
    rig.locks.expect(KEY, 0)
    assert rig.freed == [], "not from inside the call"
    rig.timers.advance(0.1)
    assert [key for key, _ in rig.freed] == [KEY]


def test_many_queues_share_one_timer(rig: Rig) -> None:
    for queue_id in range(100):
        rig.locks.expect(QueueKey("Orders", "CG", queue_id), 1_000 + queue_id * 1_000)
    rig.timers.advance(200)
    assert [key.queue_id for key, _ in rig.freed] == list(range(100))
    assert rig.timers.max_pending == 1


def test_nothing_is_told_where_it_is_switched_off(rig: Rig) -> None:
    rig.locks.expect(KEY, 3_000)
    rig.config.update(b"enableNotifyAfterPopOrderLockRelease=false")
    rig.locks.expect(QueueKey("Orders", "CG", 1), 3_000)
    rig.timers.advance(10)
    assert rig.freed == []
    assert len(rig.locks) == 0


def test_a_clock_that_steps_forward_frees_within_a_second(rig: Rig) -> None:
    rig.locks.expect(KEY, 3_600_000)
    rig.clock.step_wall(3_600_000)
    rig.timers.advance(1)
    assert len(rig.freed) == 1


def test_closed_ones_tell_nothing(rig: Rig) -> None:
    rig.locks.expect(KEY, 1_000)
    rig.locks.close()
    rig.locks.expect(KEY, 1_000)
    rig.timers.advance(10)
    assert rig.freed == []


def test_times_that_no_longer_hold_are_not_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_locks, "_MAX_STALE", 10)
    for time in range(1_000):
        rig.locks.expect(KEY, 1_000_000 - time)
        assert len(rig.locks._times) <= 13
    rig.timers.advance(1_000)
    assert len(rig.freed) == 1
