"""When requests that have waited are refused, and what is said of it."""

import logging

import pytest

from broker.fast_failure import FastFailure
from broker.live_config import LiveConfig
from remoting.routes import Lane
from sprocket.common.clock import ManualClock
from store.config import StoreConfig
from tests.broker.rig import broker_config


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def rules(clock: ManualClock, **changes: object) -> FastFailure:
    return FastFailure(LiveConfig(broker_config(**changes), StoreConfig()), clock)


def late(failure: FastFailure, clock: ManualClock, lane: Lane, waited_s: float) -> str | None:
    """What is said after it has been late for ten seconds."""
    failure.reason(lane, waited_s, 5)
    clock.advance(10.0)
    return failure.reason(lane, waited_s, 5)


def test_sends_that_waited_longer_than_they_may_are_refused_with_figures(clock: ManualClock) -> None:
    said = late(rules(clock), clock, Lane.SEND, 0.25)
    assert said is not None and said.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, ")
    assert "period in queue: 250ms, size of queue: 5; retry after 250 ms" in said
    assert late(rules(clock), clock, Lane.SEND, 0.19) is None


def test_pulls_have_limits_of_their_own_and_others_have_none(clock: ManualClock) -> None:
    assert late(rules(clock), clock, Lane.PULL, 4.9) is None
    assert late(rules(clock), clock, Lane.PULL, 5.1)
    assert late(rules(clock, wait_time_mills_in_pull_queue=10), clock, Lane.PULL, 0.1)
    for lane in (Lane.CLIENT, Lane.ADMIN):
        assert late(rules(clock), clock, lane, 60.0) is None


def test_without_fast_failure_they_wait(clock: ManualClock) -> None:
    assert late(rules(clock, broker_fast_failure_enable=False), clock, Lane.SEND, 60.0) is None


def test_a_single_pause_refuses_nothing(clock: ManualClock) -> None:
    failure = rules(clock)
    assert failure.reason(Lane.SEND, 3.0, 1) is None
    clock.advance(0.1)
    assert failure.reason(Lane.SEND, 3.1, 1) is None
    # In time again: it begins anew.
    assert failure.reason(Lane.SEND, 0.0, 1) is None
    clock.advance(0.15)
    assert failure.reason(Lane.SEND, 3.0, 1) is None
    clock.advance(0.2)
    assert failure.reason(Lane.SEND, 3.0, 1)


def test_begin_and_end_are_said_once(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    failure = rules(clock)
    with caplog.at_level(logging.WARNING):
        failure.look()
        for _ in range(3):
            late(failure, clock, Lane.SEND, 1.0)
            failure.look()
        failure.look()
        failure.look()
    assert [record.getMessage().split()[1] for record in caplog.records] == ["state=refusing", "state=serving"]
