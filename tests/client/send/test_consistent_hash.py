"""The queue of a lite topic, and of a message group at proxies, is that of RocketMQ's proxy."""

import pytest

from sprocket.client.send.consistent_hash import consistent_hash


@pytest.mark.parametrize(
    ("value", "buckets", "bucket"),
    # Of Guava's own test: HashingTest.testConsistentHash_linearCongruentialGeneratorCompatibility.
    [
        (10863919174838991, 11, 6), (2016238256797177309, 11, 3), (1673758223894951030, 11, 5),
        (2, 100001, 80343), (2201, 100001, 22152), (2202, 100001, 15018),
    ],
)  # fmt: skip
def test_buckets_are_those_of_guava(value: int, buckets: int, bucket: int) -> None:
    assert consistent_hash(value, buckets) == bucket


def test_one_more_bucket_moves_few_values() -> None:
    moved = sum(consistent_hash(value, 10) != consistent_hash(value, 11) for value in range(-1000, 1000))
    assert 100 < moved < 280
    assert {consistent_hash(value, 4) for value in range(-50, 50)} == {0, 1, 2, 3}
