"""The checker itself: histories of a register that are linearizable, and such that are not."""

import itertools
import random
from collections.abc import Iterable
from math import inf

import pytest

from tests.checkers.linearizability import Call, check


def _register(state: int, call: Call) -> Iterable[int]:
    kind, value = call.asked
    if kind == "write":
        return [value]
    if kind == "read":
        return [state] if call.answer == state else []
    expected, new = value
    if call.is_unknown:
        return [new] if state == expected else [state]
    return [new if call.answer else state] if call.answer == (state == expected) else []


def _write(made: float, returned: float, value: int) -> Call:
    return Call(made, returned, ("write", value))


def _read(made: float, returned: float, answer: int) -> Call:
    return Call(made, returned, ("read", None), answer)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="nothing"),
        pytest.param([_write(0, 1, 1), _read(2, 3, 1)], id="one after another"),
        pytest.param([_write(0, 3, 1), _read(1, 2, 0)], id="read before the write that began earlier"),
        pytest.param([_write(0, 3, 1), _read(1, 2, 1)], id="read after the write that ends later"),
        pytest.param([_write(0, inf, 1), _read(5, 6, 0), _read(7, 8, 1)], id="unknown, takes effect later"),
        pytest.param([_write(0, inf, 1), _read(5, 6, 0)], id="unknown, never takes effect"),
        pytest.param(
            [Call(0, 5, ("cas", (0, 1)), True), Call(0, 5, ("cas", (1, 2)), True), _read(6, 7, 2)], id="one order only"
        ),
    ],
)
def test_linearizable(history: list[Call]) -> None:
    assert check(history, 0, _register)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([_write(0, 1, 1), _read(2, 3, 0)], id="stale read"),
        pytest.param([_write(0, 9, 1), _read(1, 2, 1), _read(3, 4, 0)], id="read goes back"),
        pytest.param([_write(0, inf, 1), _read(1, 2, 1), _read(3, 4, 0)], id="unknown write is undone"),
        pytest.param(
            [Call(0, 5, ("cas", (0, 1)), True), Call(0, 5, ("cas", (0, 2)), True)], id="two exchange the same value"
        ),
        pytest.param([_read(0, 1, 7)], id="value that nobody wrote"),
    ],
)
def test_not_linearizable(history: list[Call]) -> None:
    verdict = check(history, 0, _register)
    assert not verdict
    assert len(verdict.order) < len(history)


def _random_history(rng: random.Random) -> list[Call]:
    calls = []
    for _ in range(rng.randrange(1, 6)):
        made = rng.uniform(0, 5)
        returned = inf if rng.random() < 0.15 else made + rng.uniform(0.1, 3)
        value = rng.randrange(3)
        if rng.random() < 0.5:
            calls.append(Call(made, returned, ("write", value)))
        else:
            calls.append(Call(made, returned, ("read", None), value))
    return [call for call in calls if not (call.is_unknown and call.asked[0] == "read")]


def _is_linearizable_by_all_orders(history: list[Call]) -> bool:
    unknown = [call for call in history if call.is_unknown]
    known = [call for call in history if not call.is_unknown]
    for count in range(len(unknown) + 1):
        for taken in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *taken]):
                if any(later.returned < earlier.made for earlier, later in itertools.combinations(order, 2)):
                    continue
                states = {0}
                for call in order:
                    states = {after for state in states for after in _register(state, call)}
                if states:
                    return True
    return False


def test_it_agrees_with_the_search_of_all_orders() -> None:
    rng = random.Random(7)
    verdicts = set()
    for _ in range(400):
        history = _random_history(rng)
        verdict = bool(check(history, 0, _register))
        assert verdict == _is_linearizable_by_all_orders(history), history
        verdicts.add(verdict)
    assert verdicts == {True, False}
