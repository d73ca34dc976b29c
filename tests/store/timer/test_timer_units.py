"""The entry of messages into the wheel by the compiled engine writes what the Python code writes one by one."""

import random
from unittest.mock import patch

import pytest

from store.message_store import MessageStore
from store.record.record import PendingMessage
from store.timer import timer_enqueue
from store.timer.timed_message import TimedMessage
from store.timer.timer_log import TimerLog
from tests.fuzz.twins.timer_targets import (
    MIN_BYTES,
    Twin,
    chain_twins,
    compare_entries,
    compiled,
    message_of,
    timer_twins,
)
from tests.store.timer.wheel_run import timed
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")


@pytest.mark.parametrize("seed", seeds(60))
def test_any_messages(seed: int) -> None:
    timer_twins(random.Random(seed).randbytes(MIN_BYTES + seed % 31))


@pytest.mark.parametrize("seed", seeds(100))
def test_any_chains_of_units_in_a_damaged_log(seed: int) -> None:
    chain_twins(random.Random(seed).randbytes(MIN_BYTES + seed % 31))


def test_due_messages_of_a_slot_are_read_and_taken_in_runs() -> None:
    twin = Twin(True, 1)
    # A queue's first message takes the Python path.
    twin.enter([PendingMessage("Orders", 0, b"first", b"", 0, 0, 0, 0, bytes(8))])
    twin.enter([message_of(random.Random(1), 1.0) for _ in range(60)])
    twin.clock.advance(300)
    with patch.object(TimerLog, "unit", autospec=True, side_effect=TimerLog.unit) as unit:
        twin.enter([])
    assert twin.store.max_offset("Orders", 0) == 61
    # One for each segment of the log.
    assert unit.call_count < 10


@pytest.mark.parametrize("seed", seeds(3))
def test_more_slots_than_one_call_may_have(seed: int) -> None:
    chance = random.Random(seed)
    compare_entries([[message_of(chance, 1.0) for _ in range(150)]], seed)


def entered_one_by_one(messages: list[PendingMessage]) -> int:
    """Return how many messages the Python code entered."""
    offsets: list[int] = []
    read = timer_enqueue.read_timed

    def counted(store: MessageStore, physical_offset: int, size_bytes: int) -> TimedMessage | str:
        offsets.append(physical_offset)
        return read(store, physical_offset, size_bytes)

    with patch.object(timer_enqueue, "read_timed", counted):
        Twin(True, 1).enter(messages)
    return len(offsets)


def test_usual_messages_are_entered_together() -> None:
    chance = random.Random(1)
    # At the end of a file of the timer log, of 78 units, Python writes a blank and goes on for up to 16 messages.
    assert entered_one_by_one([message_of(chance, 1.0) for _ in range(60)]) == 0
    assert entered_one_by_one([message_of(chance, 1.0) for _ in range(200)]) in range(32, 48)


@pytest.mark.parametrize("is_native", [False, True])
def test_a_turn_enters_fewer_messages_one_by_one_than_together(is_native: bool) -> None:
    twin = Twin(is_native, 1)
    due_ms = twin.clock.wall_ms() // 1000 * 1000 + 5000
    twin.store.append([timed(number, due_ms) for number in range(40)])
    entered = []
    with twin.engines(), patch.object(timer_enqueue, "_MAX_ONE_BY_ONE", 20):
        for _ in range(2):
            twin.timer.turn()
            entered.append(twin.timer.enqueued)
    assert entered == ([40, 40] if is_native else [20, 40])
