"""Figures of a server: declared once, read together, never two under one name."""

from typing import Any

import pytest

from sprocket.common.errors import InvariantError
from sprocket.common.figures import Figure, FigureFamily, Figures, values


def figure(name: str, value: object = 1) -> Figure:
    return Figure(name, "says", lambda: value)


def family(name: str, **items: object) -> FigureFamily:
    return FigureFamily(name, "says", lambda: items)


CLASHES: list[list[Any]] = [
    [figure("a"), figure("a")],
    [family("a_<b>"), family("a_<b>")],
    [family("a_<b>"), family("a_<c>")],
    [figure("a_1"), family("a_<b>")],
    [family("a_<b>"), figure("a_1")],
    [family("a_<b>"), family("a_b_<c>")],
    [family("no placeholder")],
    [family("<a>_<b>")],
    [figure("a_<b>")],
]


def test_values_are_texts_and_read_each_time() -> None:
    numbers = iter((1, 2))
    figures = Figures([Figure("n", "says", lambda: next(numbers)), figure("on", True), family("lag_<queue>_ms", a=3)])
    assert figures.read() == {"n": "1", "on": "true", "lag_a_ms": "3"}
    assert figures.read()["n"] == "2"


def test_a_family_without_items_has_no_figure() -> None:
    assert values([family("lag_<queue>")]) == {}


@pytest.mark.parametrize("declared", CLASHES, ids=lambda all_of_it: " and ".join(one.name for one in all_of_it))
def test_two_figures_with_one_name_are_an_error(declared: list[Any]) -> None:
    with pytest.raises(InvariantError, match=r"figure "):
        Figures(declared)


def test_names_that_only_look_alike_are_none() -> None:
    names = [figure("refused"), figure("refused_"), family("refused_<reason>"), family("refusedOf_<code>")]
    assert len(Figures(names).declared) == 4
