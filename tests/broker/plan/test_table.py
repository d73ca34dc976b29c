"""A table of plans keeps them until the version rises, and never too many."""

from typing import NamedTuple

from broker.plan.table import PEER, PlanTable, Refused
from broker.plan.version import PlanVersion


class Made(NamedTuple):
    number: int
    is_lasting: bool = True
    is_for_kernel: bool = True


def test_a_plan_is_kept_until_the_version_rises() -> None:
    version = PlanVersion()
    table: PlanTable[str, Made] = PlanTable(version)
    numbers = iter(range(10))
    answers = []
    for rises in (False, False, True, False):
        if rises:
            version.rise()
        answers.append(table.plan("a", lambda key: Made(next(numbers))).number)
    assert answers == [0, 0, 1, 1]


def test_a_plan_that_raises_the_version_itself_is_kept() -> None:
    version = PlanVersion()
    table: PlanTable[str, Made] = PlanTable(version)

    def make(key: str) -> Made:
        version.rise()
        return Made(version.number)

    table.keep("other", Made(-1))
    assert [table.plan("a", make).number for _ in range(2)] == [1, 1]
    assert list(table.current()) == ["a"]


def test_a_plan_for_one_request_is_not_kept() -> None:
    table: PlanTable[str, Made] = PlanTable(PlanVersion())
    numbers = iter(range(10))
    assert [table.plan("a", lambda key: Made(next(numbers), is_lasting=False)).number for _ in range(2)] == [0, 1]


def test_a_full_table_begins_again() -> None:
    table: PlanTable[int, Made] = PlanTable(PlanVersion(), max_plans=3)
    for key in range(7):
        table.plan(key, Made)
        assert len(table.current()) <= 3
    assert list(table.current()) == [6]


def test_a_refusal_names_the_client_that_asks() -> None:
    refused = Refused(1, f"no queue for consumer:[{PEER}]", None, {"a": "b"})
    errors = [refused.error(("10.0.0.1", port)) for port in (1, 2)]
    assert [error.remark for error in errors] == [
        "no queue for consumer:[10.0.0.1:1]",
        "no queue for consumer:[10.0.0.1:2]",
    ]
    assert not refused.is_for_kernel and errors[0].fields == {"a": "b"}
