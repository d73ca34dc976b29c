"""`python -m benchmarks.targets`: measures the rows of the table of targets and says which are reached.

Each measurement runs in a process of its own with its engine.  What was measured is kept in a file, so a run that was
stopped goes on where it was.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from benchmarks.system.process import leave_on_sigterm
from benchmarks.targets.measure import Effort, measure
from benchmarks.targets.results import BadResultsError, Outcome, Results
from benchmarks.targets.table import markdown_table, rich_table
from benchmarks.targets.target import ENGINES, MEASUREMENTS, TARGETS, Engine, Target
from sprocket.engine.choice import ENGINE, VARIABLE

_ROOT = Path(__file__).resolve().parents[2]
_KEPT = _ROOT / "build" / "bench" / "targets.json"
_FILE_COLUMNS = 180
_STOP_S = 60


def chosen(only: Sequence[str]) -> list[Target]:
    """Return the targets whose measurement or workload holds one of the texts; all without a text."""
    return [
        target
        for target in TARGETS
        if not only or any(text in target.measurement or text in target.workload for text in only)
    ]


@click.command()
@click.option("--only", multiple=True, help="Rows whose name holds this text; may be given several times.")
@click.option("--engine", type=click.Choice([*ENGINES, "both"]), help="[default: the engine in use]")
@click.option("--rounds", default=5, help="Slices or rounds of each engine.", show_default=True)
@click.option("--seconds", default=1.0, help="Length of a slice.", show_default=True)
@click.option("--full-cache", is_flag=True, help="Fill the page cache first, as on a machine that has run for a day.")
@click.option("--again", is_flag=True, help="Measure rows again that the file has.")
@click.option("--show", is_flag=True, help="Measure nothing; print the table of what the file has.")
@click.option("--markdown", is_flag=True, help="Print the table as docs/benchmarks.md has it.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), default=_KEPT, help="The file that keeps what was measured."
)
@click.option("--measure", "name", type=click.Choice(MEASUREMENTS), hidden=True)
def main(
    only: tuple[str, ...],
    engine: str | None,
    rounds: int,
    seconds: float,
    full_cache: bool,
    again: bool,
    show: bool,
    markdown: bool,
    path: Path,
    name: str | None,
) -> None:
    """Measures the rows of the table of targets; prints measured, target and reached for each engine."""
    effort = Effort(rounds, seconds, full_cache)
    if name is not None:
        click.echo(json.dumps(asdict(measure(name, effort))))
        return
    targets = chosen(only)
    if not targets:
        raise click.BadParameter(f"no row is called {' or '.join(only)}; there are {', '.join(MEASUREMENTS)}")
    try:
        results = Results(path)
    except BadResultsError as error:
        raise click.ClickException(str(error)) from error
    engines = [one for one in ENGINES if engine == "both" or one == (engine or ENGINE.name)]
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    if not show:
        _measure_all(results, engines, targets, effort, again=again)
    if markdown:
        click.echo(markdown_table(results, engines, targets))
        return
    for one in engines:
        console.print(rich_table(results, one, targets))


def _measure_all(
    results: Results, engines: Sequence[Engine], targets: Sequence[Target], effort: Effort, *, again: bool
) -> None:
    for name in dict.fromkeys(target.measurement for target in targets):
        for engine in engines:
            if again or not results.has_figures(engine, name):
                outcome = _in_a_process(name, engine, effort)
                results.put(engine, name, outcome)
                wanted = {target.figure for target in targets}
                figures = ", ".join(f"{key} {value:,.2f}" for key, value in outcome.figures.items() if key in wanted)
                click.echo(f"{name}, {engine}: {outcome.missing or figures}", err=True)


def _in_a_process(name: str, engine: Engine, effort: Effort) -> Outcome:
    """Measure in a new process that has the engine."""
    command = [sys.executable, "-m", "benchmarks.targets", "--measure", name]
    command += ["--rounds", str(effort.rounds), "--seconds", str(effort.seconds)]
    command += ["--full-cache"] * effort.full_cache
    environment = {**os.environ, VARIABLE: engine}
    process = subprocess.Popen(command, env=environment, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    with process, _stopped_in_the_end(process):
        output, _ = process.communicate()
    lines = output.splitlines()
    if process.returncode != 0 or not lines:
        return Outcome(missing=f"failed with status {process.returncode}; its error is above the table")
    return Outcome(**json.loads(lines[-1]))


@contextlib.contextmanager
def _stopped_in_the_end(process: "subprocess.Popen[str]") -> Iterator[None]:
    """If this process is stopped, the measuring one must stop its servers first."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)


if __name__ == "__main__":
    leave_on_sigterm()
    main()
