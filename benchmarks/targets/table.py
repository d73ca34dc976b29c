"""The table of targets: what was measured, what should be, and whether it is reached."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.table import Table

from benchmarks.targets.results import Outcome, Results
from benchmarks.targets.target import TARGETS, Engine, Target

HEADINGS: Final = ("workload", "figure", "measured", "target", "reached", "floor", "load")
_NUMBERS: Final = frozenset({"measured", "target", "floor", "load"})
_NOT_MEASURED: Final = Outcome(missing="not measured")


class Row(NamedTuple):
    """Cells of one row, as `HEADINGS`."""

    workload: str
    words: str
    measured: str
    wanted: str
    reached: str
    floor: str
    load: str


def rows(results: Results, engine: Engine, targets: Sequence[Target] = TARGETS) -> Iterator[Row]:
    """Yield a row for each target of an engine."""
    for target in targets:
        outcome = results.get(engine, target.measurement) or _NOT_MEASURED
        wanted = target.wanted(engine)
        shown = "-" if wanted is None else number(wanted)
        measured = outcome.figures.get(target.figure)
        if measured is None:
            yield Row(target.workload, target.words, "", shown, outcome.missing or _NOT_MEASURED.missing, "", "")
            continue
        floor = outcome.floor.get(target.figure)
        yield Row(
            target.workload,
            target.words,
            number(measured),
            shown,
            _reached(target, engine, measured, floor),
            "" if floor is None else number(floor),
            f"{outcome.load[0]:.0f} to {outcome.load[1]:.0f}",
        )


def _reached(target: Target, engine: Engine, measured: float, floor: float | None) -> str:
    is_reached = target.is_reached(engine, measured)
    if is_reached is None:
        return "-"
    if is_reached:
        return "yes"
    return "no: the floor does not reach it" if floor is not None and not target.is_reached(engine, floor) else "no"


def number(value: float) -> str:
    """Return a figure with the digits that it deserves."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rich_table(results: Results, engine: Engine, targets: Sequence[Target]) -> Table:
    """Return the table for a terminal."""
    table = Table(title=f"targets of the {engine} engine")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left")
    for row in rows(results, engine, targets):
        table.add_row(*row)
    return table


def markdown_table(results: Results, engines: Sequence[Engine], targets: Sequence[Target]) -> str:
    """Return the table of docs/benchmarks.md: the engines beside each other, and when they were measured."""
    headings = ["workload", "figure"]
    headings += [heading for engine in engines for heading in (engine, "target", "reached", "floor")]
    lines = [f"| {' | '.join(headings)} |", "|---|---|" + "--:|--:|---|--:|" * len(engines)]
    for of_target in zip(*(rows(results, engine, targets) for engine in engines), strict=True):
        cells = [cell for row in of_target for cell in (row.measured, row.wanted, row.reached, row.floor)]
        lines.append(f"| {' | '.join([of_target[0].workload, of_target[0].words, *cells])} |")
    return "\n".join([*lines, "", _conditions(results, engines, targets)])


def _conditions(results: Results, engines: Sequence[Engine], targets: Sequence[Target]) -> str:
    """Return when the figures were taken, and the load of the machine meanwhile."""
    names = dict.fromkeys(target.measurement for target in targets)
    found = [outcome for engine in engines for name in names if (outcome := results.get(engine, name)) is not None]
    measured = [outcome for outcome in found if not outcome.missing]
    if not measured:
        return "Nothing was measured."
    first, last = (choose(outcome.taken_at for outcome in measured) for choose in (min, max))
    loads = [load for outcome in measured for load in outcome.load]
    return f"Measured from {first} to {last}, load averages {min(loads):.1f} to {max(loads):.1f}."
