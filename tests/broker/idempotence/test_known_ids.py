"""Sends that wait until the ids are read from the log: they are counted, released in order, and refused at a stop."""

from pathlib import Path

import pytest

from broker.config.live_config import LiveConfig
from broker.idempotence.known_ids import MAX_HELD, KnownIds
from sprocket.common.errors import StoreBusy, StoreError
from store.scan.record_batch import RecordBatch
from tests.broker.loop_timer import ManualTimers
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock


class EmptyLog:
    """A log of three segments without a record."""

    wrote_offset = 3000

    def segment_before(self, store_timestamp_ms: int) -> int:
        return 0

    def records_from(self, physical_offset: int) -> tuple[RecordBatch | None, int]:
        return None, physical_offset + 1000

    def holds(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> bool:
        return True


class Rig:
    def __init__(self) -> None:
        clock = ManualClock()
        self.timers = ManualTimers(clock)
        config = LiveConfig(broker_config(), store_config(Path("/nowhere")))
        self.ids = KnownIds(config, EmptyLog(), clock, self.timers.call_later)
        self.outcomes: list[tuple[int, StoreError | None]] = []

    def hold(self, number: int) -> None:
        self.ids.hold(lambda error: self.outcomes.append((number, error)))


def test_no_more_wait_than_may() -> None:
    rig = Rig()
    for number in range(MAX_HELD):
        rig.hold(number)
    with pytest.raises(StoreBusy):
        rig.hold(MAX_HELD)
    assert (rig.ids.is_ready, rig.outcomes) == (False, [])


def test_those_that_waited_go_on_in_several_turns_before_any_that_came_meanwhile() -> None:
    rig = Rig()
    for number in range(100):
        rig.hold(number)
    while not rig.outcomes:
        rig.timers.turn()
    assert 0 < len(rig.outcomes) < 100 and not rig.ids.is_ready
    rig.hold(100)
    while rig.timers.pending:
        before = len(rig.outcomes)
        rig.timers.turn()
        assert len(rig.outcomes) < before + 50
    assert rig.outcomes == [(number, None) for number in range(101)]
    assert rig.ids.is_ready


def test_a_send_that_goes_on_finds_the_window_complete() -> None:
    rig = Rig()
    found: list[bool] = []
    for _ in range(2):
        rig.ids.hold(lambda error: found.append(rig.ids.is_ready))
    rig.timers.advance(0)
    assert found == [True, True]


def test_a_stop_refuses_those_that_wait_and_those_that_come() -> None:
    rig = Rig()
    rig.hold(1)
    rig.ids.stop()
    ((number, error),) = rig.outcomes
    assert (number, isinstance(error, StoreError)) == (1, True)
    with pytest.raises(StoreError, match="stops"):
        rig.hold(2)
