"""What several slaves have acknowledged."""

import pytest

from ha.replicas import NO_LIMIT, ReplicaRules, Replicas


def replicas_of(*offsets: int, **rules: int) -> Replicas:
    replicas = Replicas(ReplicaRules(max_gap_bytes=100, **rules))  # type: ignore[arg-type] # bool is an int
    for number, offset in enumerate(offsets):
        replicas.acknowledged(f"slave {number}", 1, offset)
    return replicas


@pytest.mark.parametrize(("count", "expected"), [(1, NO_LIMIT), (2, 900), (3, 850), (4, 10), (5, -1)])
def test_up_to_where_so_many_have_the_log(count: int, expected: int) -> None:
    assert replicas_of(850, 900, 10).acknowledged_by(count) == expected


def test_a_slave_that_is_connected_twice_counts_once() -> None:
    replicas = replicas_of(800)
    replicas.acknowledged("slave 0", 2, 900)
    assert replicas.offsets() == [900]
    assert replicas.acknowledged_by(3) == -1
    replicas.left("slave 0", 2)
    assert replicas.offsets() == [800]
    replicas.left("slave 0", 1)
    replicas.left("slave 0", 1)
    assert replicas.offsets() == []


def test_who_is_near_enough_is_in_sync() -> None:
    replicas = replicas_of(1000, 901, 900)
    assert replicas.in_sync(1000) == 3
    assert replicas.in_sync(1200) == 1


@pytest.mark.parametrize(
    ("rules", "slaves", "expected"),
    [
        ({}, 0, 2),
        ({"in_sync_replicas": 3}, 0, 3),
        ({"in_sync_replicas": 3, "auto_in_sync_replicas": True}, 0, 1),
        ({"in_sync_replicas": 3, "auto_in_sync_replicas": True}, 1, 2),
        ({"in_sync_replicas": 3, "auto_in_sync_replicas": True}, 5, 3),
        ({"in_sync_replicas": 3, "min_in_sync_replicas": 2, "auto_in_sync_replicas": True}, 0, 2),
    ],
)
def test_how_many_must_have_a_message(rules: dict[str, int], slaves: int, expected: int) -> None:
    assert replicas_of(*[1000] * slaves, **rules).required(1000) == expected
