"""Refusal of requests that have waited for too long, and its log lines."""

import logging
from collections.abc import Callable

import pytest

from broker.config.live_config import LiveConfig
from broker.fast_failure import ClassLoad, FastFailure
from sprocket.remoting.routes import Traffic
from store.config.store_config import StoreConfig
from tests.broker.rig import broker_config
from tests.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def rules(clock: ManualClock, **changes: object) -> FastFailure:
    return FastFailure(LiveConfig(broker_config(**changes), StoreConfig()), clock)


def reason(failure: FastFailure, traffic: Traffic, waited_s: float) -> str | None:
    share, said = failure.verdict(traffic, waited_s, 5)
    return said if share < 1.0 else None


def late(failure: FastFailure, clock: ManualClock, traffic: Traffic, waited_s: float) -> str | None:
    """What is said after requests have been late for ten seconds."""
    for _ in range(100):
        reason(failure, traffic, waited_s)
        clock.advance(0.1)
    return reason(failure, traffic, waited_s)


def test_sends_that_waited_longer_than_they_may_are_refused_with_figures(clock: ManualClock) -> None:
    said = late(rules(clock), clock, Traffic.SEND, 0.25)
    assert said is not None and said.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, ")
    assert "period in queue: 250ms, size of queue: 5; retry after 250 ms" in said
    assert late(rules(clock), clock, Traffic.SEND, 0.19) is None


def test_pulls_have_limits_of_their_own_and_others_have_none(clock: ManualClock) -> None:
    assert late(rules(clock), clock, Traffic.PULL, 4.9) is None
    assert late(rules(clock), clock, Traffic.PULL, 5.1)
    assert late(rules(clock, wait_time_mills_in_pull_queue=10), clock, Traffic.PULL, 0.1)
    for traffic in (Traffic.CLIENT, Traffic.ADMIN):
        assert late(rules(clock), clock, traffic, 60.0) is None


def test_what_was_late_long_ago_is_forgotten(clock: ManualClock) -> None:
    failure = rules(clock)
    assert late(failure, clock, Traffic.SEND, 1.0)
    clock.advance(5.0)
    assert reason(failure, Traffic.SEND, 1.0) is None


def test_without_fast_failure_they_wait(clock: ManualClock) -> None:
    assert late(rules(clock, broker_fast_failure_enable=False), clock, Traffic.SEND, 60.0) is None


def test_a_single_pause_refuses_nothing(clock: ManualClock) -> None:
    failure = rules(clock)
    for waited_s in (3.0, 3.1):
        assert reason(failure, Traffic.SEND, waited_s) is None
        clock.advance(0.1)
    clock.advance(0.15)
    # After a whole limit without a late request, the class starts again.
    assert reason(failure, Traffic.SEND, 0.0) is None
    assert reason(failure, Traffic.SEND, 3.0) is None
    for _ in range(4):
        clock.advance(0.1)
        said = reason(failure, Traffic.SEND, 3.0)
    assert said


def turns(load: ClassLoad, seconds: float, begin: float, requests: Callable[[float], int]) -> list[tuple[float, float]]:
    """Length and share of the turns of a loop that serves in 50 us, refuses in 2.5, and reads 20 times in each.

    `requests` says how many come with a turn, by the length of the one before.
    """
    seen, now, length = [], begin, 0.0
    while now < begin + seconds:
        count, waited = requests(length), 0.0
        for _ in range(20):
            share = load.share_for(waited, 0.2, now + waited)
            waited += count / 20 * (share * 50e-6 + (1 - share) * 2.5e-6) + 1e-6
        now, length = now + waited, waited
        seen.append((length, share))
    return seen


def test_five_times_the_load_is_read_in_time_and_as_much_of_it_served_as_can_be() -> None:
    load, rate = ClassLoad(), 100_000  # of 20,000 that can be served in a second
    seen = turns(load, 20.0, 1.0, lambda length: int(rate * length) + 10)
    settled = seen[len(seen) // 5 :]
    assert max(length for length, _ in settled) < 0.5
    served = sum(share * rate * length for length, share in settled) / sum(length for length, _ in settled)
    assert 5_000 < served < 20_000
    # It ends: at a tenth of that all is served at once.
    after = turns(load, 3.0, 100.0, lambda length: int(rate * length / 10) + 10)
    assert after[-1][1] == 1.0


def test_a_client_that_waits_for_responses_is_served_again_after_an_overload() -> None:
    load = ClassLoad()
    turns(load, 5.0, 1.0, lambda length: 20_000)
    assert load.share < 0.5
    # 2,000 requests are always outstanding: they take a tenth of a second, which is in time.
    after = turns(load, 5.0, 6.0, lambda length: 2_000)
    length, share = after[-1]
    assert share == 1.0
    assert length == pytest.approx(0.1, rel=0.01)


def test_begin_and_end_are_said_once(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    failure = rules(clock)
    with caplog.at_level(logging.WARNING):
        failure.report()
        for _ in range(3):
            late(failure, clock, Traffic.SEND, 1.0)
            failure.report()
        failure.report()
        failure.report()
    assert [record.getMessage().split()[1] for record in caplog.records] == ["state=refusing", "state=serving"]
