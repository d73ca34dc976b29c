"""The demo sends its last messages when the killed broker takes messages again, however long that takes."""

import pytest

from examples.demo.flights import Flight
from examples.demo.sending import Sending
from tests.clock import ManualClock

LIMIT_S = 120.0


def sending(count: int, clock: ManualClock) -> Sending:
    flight = Flight("id", "AA", 1, None, "JFK", "BOS", 2013, 1, 1, 5, 0, None, None, None, 1, "")
    return Sending([flight] * count, clock, "broker-b", lambda: None)


def seconds_of_the_rest(count: int, recovered_after_s: float | None = None) -> float:
    """How long the second half is paused if sending itself takes no time."""
    clock = ManualClock()
    it = sending(count, clock)
    began = clock.monotonic()
    it.sent.killed = began
    for left in range(count - count // 2, 0, -1):
        pause_s = it.pause_s(left)
        assert pause_s < 0.5, "the broker's return is seen soon after it"
        clock.advance(pause_s)
        if recovered_after_s is not None and clock.monotonic() - began >= recovered_after_s:
            it.sent.recovered = it.sent.recovered or clock.monotonic()
    return clock.monotonic() - began


@pytest.mark.parametrize("count", [1000, 4000, 336_776])
def test_messages_are_left_until_the_time_is_over(count: int) -> None:
    assert seconds_of_the_rest(count) == pytest.approx(LIMIT_S, abs=1)


@pytest.mark.parametrize("count", [1000, 4000, 336_776])
def test_nothing_waits_for_a_broker_that_is_back(count: int) -> None:
    assert seconds_of_the_rest(count, recovered_after_s=7) == pytest.approx(7, abs=1)


def test_nothing_waits_before_the_kill() -> None:
    assert sending(4000, ManualClock()).pause_s(1) == 0
