from broker.client.queue_locks import QueueLocks
from sprocket.remoting.bodies.client import MessageQueue
from tests.clock import ManualClock

Q0, Q1 = (MessageQueue("Orders", "broker-a", queue_id) for queue_id in range(2))


def test_one_client_at_a_time() -> None:
    locks = QueueLocks(ManualClock())
    assert locks.lock("CG", [Q0], "c1") == [Q0]
    assert locks.lock("CG", [Q0, Q1], "c2") == [Q1]
    assert locks.lock("CG", [Q0], "c1") == [Q0]
    assert locks.lock("Other", [Q0], "c2") == [Q0], "groups do not disturb each other"


def test_lock_expires_60_s_after_it_was_last_renewed() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    locks.lock("CG", [Q0], "c1")
    clock.advance(59)
    locks.lock("CG", [Q0], "c1")
    clock.advance(60)
    assert locks.lock("CG", [Q0], "c2") == []
    assert not locks.all_expired("CG")
    clock.advance(1)
    assert locks.all_expired("CG")
    assert locks.lock("CG", [Q0], "c2") == [Q0]
    assert locks.lock("CG", [Q0], "c1") == []


def test_wall_clock_has_no_say() -> None:
    clock = ManualClock()
    locks = QueueLocks(clock)
    locks.lock("CG", [Q0], "c1")
    clock.step_wall(3_600_000)
    assert locks.lock("CG", [Q0], "c2") == []


def test_only_the_holder_unlocks() -> None:
    locks = QueueLocks(ManualClock())
    locks.lock("CG", [Q0], "c1")
    locks.unlock("CG", [Q0, Q1], "c2")
    assert locks.lock("CG", [Q0], "c2") == []
    locks.unlock("CG", [Q0], "c1")
    assert locks.lock("CG", [Q0], "c2") == [Q0]
    assert locks.all_expired("Unknown")


def test_a_client_without_locks_is_not_remembered() -> None:
    locks = QueueLocks(ManualClock())
    assert locks.lock("Unknown", [], "c1") == []
    assert len(locks) == 0
    locks.lock("CG", [Q0], "c1")
    locks.lock("CG", [Q0], "c2")
    assert len(locks) == 1
    assert locks.lock("CG", [Q0], "c2") == [], "who is refused takes nothing from the holder"
