"""Figures of a running server: each is declared once, with its name, its meaning and the way to read it.

A part declares its figures beside the values that they show.  `Figures` reads all of them for
GET_BROKER_RUNTIME_INFO, and `docs.pages.figures_page` writes their meanings to docs/figures.md.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sprocket.common.invariant import invariant


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `read` returns its value now, which is shown as text."""

    name: str
    says: str
    read: Callable[[], object]


@dataclass(frozen=True, slots=True)
class FigureFamily:
    """Figures of numbered or named items, such as ``popReviveLag_<queue>``.

    `name` holds one placeholder in angle brackets.  `read` returns the values now, by what the placeholder stands for;
    an item without a value has no figure.
    """

    name: str
    says: str
    read: Callable[[], Mapping[Any, object]]


Declared = Figure | FigureFamily
_PLACEHOLDER = re.compile("<[a-z]+>")


class Figures:
    """All figures of one server.  Raises InvariantError if two of them could have one name."""

    def __init__(self, declared: Iterable[Declared]) -> None:
        self.declared = tuple(declared)
        counts = Counter(one.name for one in self.declared)
        for one in self.declared:
            is_family = isinstance(one, FigureFamily)
            placeholders = len(_PLACEHOLDER.findall(one.name))
            invariant(placeholders == is_family, f"figure {one.name}: a family has one placeholder, a figure none")
            invariant(counts[one.name] == 1, f"figure {one.name} is declared twice")
            if is_family:
                clashes = [name for name in counts if name != one.name and _covers(one.name, name)]
                invariant(not clashes, f"figure {one.name} may have the same name as {clashes}")

    def read(self) -> dict[str, str]:
        """Return the values of all figures as text, by name."""
        return values(self.declared)


def values(declared: Iterable[Declared]) -> dict[str, str]:
    """Return the values of the figures of one part as text, by name."""
    found: dict[str, str] = {}
    for one in declared:
        if isinstance(one, Figure):
            found[one.name] = _text(one.read())
        else:
            head, _, tail = _parts(one.name)
            found |= {f"{head}{item}{tail}": _text(value) for item, value in one.read().items()}
    return found


def _parts(name: str) -> tuple[str, str, str]:
    head, placeholder, tail = re.split(f"({_PLACEHOLDER.pattern})", name)
    return head, placeholder, tail


def _covers(family: str, name: str) -> bool:
    """Whether `family` may have a figure named `name`."""
    head, _, tail = _parts(family)
    return len(name) > len(head + tail) and name.startswith(head) and name.endswith(tail)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
