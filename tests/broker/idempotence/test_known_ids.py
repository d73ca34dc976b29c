"""Sends that wait until the ids are read from the log: they are counted, released in order, and refused at a stop."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from broker.config.live_config import LiveConfig
from broker.idempotence.known_ids import MAX_HELD, KnownIds
from sprocket.common.errors import StoreBusy, StoreError
from sprocket.common.next_turn import at_once
from store.scan.record_batch import RecordBatch
from tests.broker.loop_timer import ManualTimers
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock


class EmptyLog:
    """A log of three segments without a record."""

    wrote_offset = 3000
    failure: StoreError | None = None

    def segment_before(self, store_timestamp_ms: int) -> int:
        return 0

    def records_from(self, physical_offset: int) -> tuple[RecordBatch | None, int]:
        if self.failure is not None:
            raise self.failure
        return None, physical_offset + 1000

    def holds(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> bool:
        return True


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.config = LiveConfig(broker_config(), store_config(Path("/nowhere")))
        self.log = EmptyLog()
        self.ids = KnownIds(self.config, self.log, self.clock, self.timers.call_later)
        self.outcomes: list[tuple[int, StoreError | None]] = []

    def hold(self, number: int) -> None:
        def ready(error: StoreError | None) -> None:
            self.clock.advance(0.0001)  # an append
            self.outcomes.append((number, error))

        self.ids.hold(ready)

    def turns(self) -> Iterator[int]:
        """Turn the loop until nothing is left to do; give the number of outcomes before each turn."""
        for _ in range(1000):
            if not self.timers.pending:
                return
            before = len(self.outcomes)
            self.timers.turn()
            yield before
        raise AssertionError("it does not end")

    def send(self, number: int) -> bool:
        """Send as a client does that repeats what is refused; return whether the broker took it."""
        try:
            if self.ids.is_ready:
                self.outcomes.append((number, None))
            else:
                self.hold(number)
        except StoreBusy:
            return False
        return True


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
    for before in rig.turns():
        assert len(rig.outcomes) < before + 25
    assert rig.outcomes == [(number, None) for number in range(101)]
    assert rig.ids.is_ready


def test_a_send_that_goes_on_finds_the_window_complete() -> None:
    rig = Rig()
    found: list[bool] = []
    for _ in range(2):
        rig.ids.hold(lambda error: found.append(rig.ids.is_ready))
    rig.timers.advance(0)
    assert found == [True, True]


@pytest.mark.parametrize("senders", [100, 1000, 3000])
def test_senders_that_send_again_at_once_do_not_keep_others_waiting(senders: int) -> None:
    rig = Rig()
    sending = list(range(senders))
    for _ in range(300):
        answered = len(rig.outcomes)
        sending = [number for number in sending if not rig.send(number)]
        rig.timers.turn()
        sending += [number for number, _ in rig.outcomes[answered:]]
        if rig.ids.is_ready:
            break
    assert rig.ids.is_ready and not rig.timers.pending
    assert {number for number, _ in rig.outcomes} | set(sending) == set(range(senders))


def test_a_turn_ends_after_a_slice_and_lets_one_go_on_at_least() -> None:
    rig = Rig()
    for _ in range(5):
        rig.ids.hold(lambda error: rig.clock.advance(1))
    times = [rig.clock.monotonic() for _ in rig.turns()]
    assert times[-5:] == [1, 2, 3, 4, 5] and rig.ids.is_ready


def test_who_comes_after_a_failed_read_begins_a_new_one_while_the_others_are_refused() -> None:
    rig = Rig()
    for number in range(500):
        rig.hold(number)
    rig.log.failure = failure = StoreError("the disk does not answer")
    rig.timers.turn()
    rig.log.failure = None
    assert 0 < len(rig.outcomes) < 200
    rig.hold(500)
    for before in rig.turns():
        assert len(rig.outcomes) < before + 200
    assert rig.ids.is_ready and rig.outcomes[-1] != (500, None)
    refused = [outcome for outcome in rig.outcomes if outcome != (500, None)]
    assert refused == [(number, failure) for number in range(500)]


def test_those_of_failed_reads_count_until_they_are_refused() -> None:
    rig = Rig()
    rig.log.failure = StoreError("the disk does not answer")
    number = 0
    for _ in range(20):
        for _ in range(MAX_HELD):
            number += rig.send(number)
        rig.timers.turn()
        assert number - len(rig.outcomes) <= MAX_HELD
    assert list(rig.turns())
    assert sorted(number for number, _ in rig.outcomes) == list(range(number))
    assert None not in {error for _, error in rig.outcomes}


def test_a_log_whose_begin_cannot_be_read_refuses_and_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    def fail(store_timestamp_ms: int) -> int:
        raise StoreError("the disk does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(rig.log, "segment_before", fail)
        rig.hold(1)
    rig.hold(2)
    rig.timers.advance(0)
    assert [(number, error is None) for number, error in rig.outcomes] == [(1, False), (2, True)]


def test_a_send_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    def fail(error: StoreError | None) -> None:
        raise ValueError("a bug")

    rig.hold(1)
    rig.ids.hold(fail)
    rig.hold(2)
    rig.timers.advance(0)
    assert rig.outcomes == [(1, None), (2, None)]
    assert rig.ids.is_ready
    assert "event=held_send_failed" in caplog.text


def test_a_stop_refuses_those_that_wait_and_those_that_come() -> None:
    rig = Rig()
    rig.hold(1)
    rig.ids.stop()
    ((number, error),) = rig.outcomes
    assert (number, isinstance(error, StoreError)) == (1, True)
    with pytest.raises(StoreError, match="stops"):
        rig.hold(2)


def test_a_stop_refuses_in_steps_also_those_that_were_to_go_on() -> None:
    rig = Rig()
    for number in range(100):
        rig.hold(number)
    while not rig.outcomes:
        rig.timers.turn()
    steps = rig.ids.answer_held()
    before = len(rig.outcomes)
    next(steps)
    assert len(rig.outcomes) == before + 1
    at_once(steps)
    assert [number for number, _ in rig.outcomes] == list(range(100))
    kinds = [kind for kind, _ in groupby(type(error) for _, error in rig.outcomes)]
    assert kinds == [type(None), StoreError]
    assert not rig.timers.pending
