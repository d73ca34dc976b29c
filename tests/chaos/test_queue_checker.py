"""The checker finds what it is there to find."""

import pytest

from tests.chaos.queue_checker import QueueChecker

GOOD = {0: [(0, "a"), (1, "b")], 1: [(0, "c")]}


def checker() -> QueueChecker:
    made = QueueChecker(unknown={"b"})
    made.on_acknowledged("a", 0, 0)
    made.on_acknowledged("c", 1, 0)
    return made


def test_nothing_to_find() -> None:
    assert checker().check(GOOD) == []
    assert checker().check({0: [(0, "a")], 1: [(0, "c")]}) == []


@pytest.mark.parametrize(
    ("queues", "problem"),
    [
        ({0: [(0, "a"), (1, "b")], 1: []}, "c, acknowledged at (1, 0), is lost"),
        ({0: [(0, "a"), (2, "b")], 1: [(0, "c")]}, "queue 0: offset 2 where 1 was expected"),
        ({0: [(0, "b"), (1, "a")], 1: [(0, "c")]}, "a, acknowledged at (0, 0), stands at (0, 1)"),
        ({0: [(0, "a"), (1, "b"), (2, "b")], 1: [(0, "c")]}, "b stands at (0, 1) and at (0, 2)"),
        ({0: [(0, "a"), (1, "x")], 1: [(0, "c")]}, "x was never sent"),
    ],
)
def test_planted_faults(queues: dict[int, list[tuple[int, str]]], problem: str) -> None:
    assert problem in checker().check(queues)


def test_one_offset_given_twice() -> None:
    made = checker()
    made.on_acknowledged("d", 0, 0)
    assert "queue 0 offset 0 was given to a and to d" in made.check(GOOD)


def test_what_retention_removed_is_not_lost() -> None:
    assert checker().check({0: [], 1: [(0, "c")]}, {0: 2}) == []
    assert checker().check({0: [(1, "b")], 1: []}, {0: 1, 1: 0}) == ["c, acknowledged at (1, 0), is lost"]
    assert checker().check({0: [(1, "b")], 1: []}, {0: 2, 1: 1}) == ["queue 0: offset 1 where 2 was expected"]
