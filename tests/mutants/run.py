"""Plants each mutant in a copy of HEAD and runs its tests: ``python -m tests.mutants.run [words of names]``.

Writes RESULTS.md beside this file; what was not run keeps its line there.
Status 1 when one survives, 2 when the tests fail without any.
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.definitions import MUTANTS, Mutant

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("RESULTS.md")
_LIMIT_S: Final = 120.0
_ALL_LIMIT_S: Final = 900.0
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
_SOME_FAILED: Final = 1


@dataclass(frozen=True)
class Result:
    """What the tests said of one mutant; `by` is the first test that failed, empty for a survivor."""

    mutant: Mutant
    by: str
    seconds: float


class NoMutant(Exception):
    """A mutant's text is not in its file, or more than once, or its tests fail without it."""


def planted(source: str, mutant: Mutant) -> str:
    """`source` with the bug in it.  Raises NoMutant unless the old text stands there exactly once."""
    count = source.count(mutant.old)
    if count != 1:
        raise NoMutant(f"{mutant.name}: its text stands {count} times in {mutant.file}")
    return source.replace(mutant.old, mutant.new)


def copy_tree(directory: Path) -> None:
    """HEAD, without what is not committed."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)


def first_failure(directory: Path, tests: tuple[str, ...], limit_s: float = _LIMIT_S) -> str:
    """Run tests in the copy; the first that fails, or "".  Raises NoMutant when they cannot be run."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "60", *tests]
    # The installed project is ROOT; the copy comes before it, in whatever the tests start as well.
    environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            command, cwd=directory, env=environment, check=False, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return f"no end after {limit_s:.0f} s"
    if ended.returncode == 0:
        return ""
    found = _FAILED.search(ended.stdout)
    if ended.returncode == _SOME_FAILED and found:
        return found.group(1)
    if "Timeout" in ended.stdout or "Timeout" in ended.stderr:
        return "a test that does not end"
    raise NoMutant(f"{' '.join(tests)}: status {ended.returncode}\n{ended.stdout[-3000:]}{ended.stderr[-1000:]}")


def try_mutant(directory: Path, mutant: Mutant) -> Result:
    """Plant, test, and take the bug out again.  Raises NoMutant."""
    path = directory / mutant.file
    source = path.read_text()
    path.write_text(planted(source, mutant))
    began = time.monotonic()
    try:
        return Result(mutant, first_failure(directory, mutant.tests), time.monotonic() - began)
    finally:
        path.write_text(source)


def verdict(result: Result) -> str:
    """Return the measured columns of its row."""
    found = f"`{result.by}`" if result.by else "**survived**"
    return f"{found} | {result.seconds:.1f} |"


def verdicts_in(before: str) -> dict[str, str]:
    """Return the measured columns of each row of a page by the mutant's name."""
    rows = (line.removeprefix("| ").split(" | ") for line in before.splitlines() if line.startswith("| "))
    return {cells[0]: " | ".join(cells[-2:]) for cells in rows}


def page(results: list[Result], before: str, date: str) -> str:
    """Return the page of results.  What was not run keeps its verdict; all other words come from the definitions."""
    verdicts = verdicts_in(before) | {result.mutant.name: verdict(result) for result in results}
    lines = [
        f"| {mutant.name} | {mutant.why} | {verdicts[mutant.name]}" for mutant in MUTANTS if mutant.name in verdicts
    ]
    caught = sum("**survived**" not in line for line in lines)
    head = [
        "# Planted bugs, and the tests that found them",
        "",
        f"{date}: {caught} of {len(lines)} caught."
        " Made by `python -m tests.mutants.run`; the bugs are in `definitions.py`.",
        "",
        "| Bug | Breaks | Found by | Seconds |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *lines]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*", help="only mutants whose name holds one of these")
    arguments = parser.parse_args()
    chosen = [
        mutant for mutant in MUTANTS if not arguments.words or any(word in mutant.name for word in arguments.words)
    ]
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        directory = Path(name)
        copy_tree(directory)
        every_test = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
        if failure := first_failure(directory, every_test, _ALL_LIMIT_S):
            print(f"without a mutant, {failure} fails")
            sys.exit(2)
        for mutant in chosen:
            results.append(try_mutant(directory, mutant))
            print(f"{results[-1].seconds:6.1f} s  {mutant.name}: {results[-1].by or 'SURVIVED'}", flush=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    RESULTS.write_text(page(results, RESULTS.read_text() if RESULTS.exists() else "", today))
    sys.exit(0 if all(result.by for result in results) else 1)


if __name__ == "__main__":
    main()
