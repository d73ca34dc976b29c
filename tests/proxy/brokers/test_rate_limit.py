"""Calls in a second, by a clock of the test."""

from proxy.brokers.rate_limit import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _passed(limit: RateLimit, calls: int) -> int:
    return sum(limit.passes() for _ in range(calls))


def test_so_many_calls_pass_in_a_second() -> None:
    clock = Clock()
    limit = RateLimit(10, clock)
    assert _passed(limit, 30) == 10
    clock.now += 0.5
    assert _passed(limit, 30) == 5
    clock.now += 1.0
    assert _passed(limit, 30) == 10


def test_long_silence_saves_the_calls_of_one_second() -> None:
    clock = Clock()
    limit = RateLimit(3, clock)
    assert _passed(limit, 2) == 2
    clock.now += 3600.0
    assert _passed(limit, 30) == 3
