"""The arithmetic of a bucket, against a model that counts each token."""

import random

import pytest

from broker.quota.bucket import Bucket, Kind, QuotaExceeded, Tally, charge, longest_wait
from tests.clock import ManualClock


def bucket(
    clock: ManualClock, rate: float, burst: float, kind: Kind = Kind.MESSAGES_IN, *, is_soft: bool = False
) -> Bucket:
    return Bucket("topic Orders", kind, rate, burst, clock, Tally(), is_soft=is_soft)


def test_a_full_bucket_admits_its_burst_and_then_its_rate() -> None:
    clock = ManualClock()
    one = bucket(clock, 10, 5)
    assert one.left() == 5
    one.take(5)
    assert (one.left(), one.wait_s()) == (0, 0.1)
    clock.advance(0.1)
    assert (one.left(), one.wait_s()) == (1, 0.0)


def test_a_request_larger_than_what_is_left_is_admitted_and_its_debt_paid_back() -> None:
    clock = ManualClock()
    one = bucket(clock, 10, 5)
    one.take(25)
    assert one.wait_s() == pytest.approx(2.1)
    clock.advance(2.0)
    assert one.left() == 0
    clock.advance(0.1)
    assert one.left() == 1


def test_no_bucket_holds_more_than_its_burst() -> None:
    clock = ManualClock()
    one = bucket(clock, 10, 5)
    clock.advance(1000)
    assert one.left() == 5


def test_a_soft_bucket_admits_everything_and_counts_what_is_over_it() -> None:
    clock = ManualClock()
    one = bucket(clock, 10, 5, is_soft=True)
    one.take(8)
    one.take(1)
    assert one.wait_s() == 0
    assert (one.tally.used, one.tally.exceeded) == (9, 4)


def test_a_changed_rate_holds_from_its_change_on() -> None:
    clock = ManualClock()
    one = bucket(clock, 1, 1)
    one.take(101)
    clock.advance(50)
    one.configure(50, 50, one.tally, is_soft=False)
    assert one.wait_s() == pytest.approx(51 / 50)


def test_requests_charge_each_bucket_in_its_unit() -> None:
    clock = ManualClock()
    kinds = {kind: bucket(clock, 1000, 1000, kind) for kind in Kind}
    charge(kinds.values(), messages=3, size_bytes=500)
    taken = {kind: 1000 - round(one.level) for kind, one in kinds.items()}
    assert taken == {
        Kind.MESSAGES_IN: 3, Kind.BYTES_IN: 500, Kind.MESSAGES_OUT: 3, Kind.BYTES_OUT: 500, Kind.REQUESTS: 1,
    }  # fmt: skip


def test_the_refusal_says_which_quota_and_when_to_try_again() -> None:
    clock = ManualClock()
    one = bucket(clock, 1000, 1000)
    one.take(1119)
    last, wait_s = longest_wait([bucket(clock, 1, 1), one])
    assert last is one
    error = QuotaExceeded(one, wait_s)
    assert error.remark == "quota 1000 messages/s of topic Orders is used up; try again in 120 ms"
    assert error.fields == {"retryAfterMillis": "120"}


@pytest.mark.parametrize("seed", range(20))
def test_any_requests_are_admitted_as_a_count_of_tokens_says(seed: int) -> None:
    """Times and rates are such that each number of tokens is exact."""
    rng, clock = random.Random(seed), ManualClock()
    rate, burst = rng.choice((8, 64, 1024)), rng.choice((1, 8, 4096))
    one, tokens = bucket(clock, rate, burst), float(burst)
    admitted = 0
    for _ in range(500):
        step = rng.randrange(0, 16) / 8
        clock.advance(step)
        tokens = min(burst, tokens + step * rate)
        cost = rng.choice((1, 1, 3, 500))
        assert (one.left() > 0) == (tokens > 0) == (one.wait_s() == 0)
        if tokens > 0:
            one.take(cost)
            tokens -= cost
            admitted += cost
    assert one.tally.used == admitted
    assert one.level == tokens
