"""What was measured, kept in a file: a run that was stopped goes on with the rows that it lacks."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.targets.target import Engine


class BadResultsError(Exception):
    """The file does not hold results."""


@dataclass(frozen=True)
class Outcome:
    """Result of one measurement with one engine: its figures, or why there are none.

    `floor` has the figures of the C floor, where it ran beside.  `load` is the machine's load
    average before and after.
    """

    figures: dict[str, float] = field(default_factory=dict)
    floor: dict[str, float] = field(default_factory=dict)
    missing: str = ""
    load: tuple[float, float] = (0.0, 0.0)
    taken_at: str = ""


class Results:
    """Outcomes by engine and measurement, and the file that keeps them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, dict[str, Outcome]] = {}
        if path.exists():
            try:
                self._outcomes = {
                    engine: {name: _outcome(found) for name, found in outcomes.items()}
                    for engine, outcomes in json.loads(path.read_text()).items()
                }
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise BadResultsError(f"{path} does not hold results: {error}; remove it, or name another") from error

    def get(self, engine: Engine, measurement: str) -> Outcome | None:
        """Return the outcome; None if it was not measured."""
        return self._outcomes.get(engine, {}).get(measurement)

    def has_figures(self, engine: Engine, measurement: str) -> bool:
        """Return whether it was measured with success."""
        found = self.get(engine, measurement)
        return found is not None and not found.missing

    def put(self, engine: Engine, measurement: str, outcome: Outcome) -> None:
        """Keep an outcome, also in the file."""
        self._outcomes.setdefault(engine, {})[measurement] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        text = json.dumps(
            {name: {key: asdict(one) for key, one in found.items()} for name, found in self._outcomes.items()}, indent=2
        )
        partial.write_text(text + "\n")
        partial.replace(self._path)


def _outcome(found: dict[str, object]) -> Outcome:
    outcome = Outcome(**found)  # type: ignore[arg-type]
    before, after = outcome.load
    return Outcome(outcome.figures, outcome.floor, outcome.missing, (before, after), outcome.taken_at)
