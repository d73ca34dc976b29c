"""The second chance of tests that are marked as unsteady: ``python -m tests.unsteady FILE``, used by `.ci/run`.

A failed run has written FILE by ``--failures-to``.  If every failed test is marked and they are few, each runs once
more, alone.  Any other failure fails the run.  Deterministic tests have no second chance.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

# More failures than these are no accident of a busy machine.
MAX_AGAIN: Final = 10
_EXIT: Final = "exit"
_STEADY: Final = "steady"
_UNSTEADY: Final = "unsteady"
_TESTS_FAILED: Final = int(pytest.ExitCode.TESTS_FAILED)


class FailureList:
    """Pytest plugin that writes the failed tests, and the exit status, one per line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            reason = getattr(report, "unsteady_reason", "")
            self._lines[f"{_UNSTEADY if reason else _STEADY}\t{report.nodeid}\t{reason}"] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._lines[f"{_STEADY}\t{report.nodeid}\t"] = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        lines = [*self._lines, f"{_EXIT}\t{int(exitstatus)}\t"]
        self._file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def reason_of(item: pytest.Item) -> str:
    """Return the reason of the test's mark, empty without a mark.  Raises UsageError for a mark without a reason."""
    marker = item.get_closest_marker("unsteady")
    if marker is None:
        return ""
    reason = marker.kwargs.get("reason", "")
    if not reason:
        raise pytest.UsageError(f"{item.nodeid} is marked as unsteady without a reason; write unsteady(reason=...)")
    return str(reason)


@dataclass(frozen=True)
class Failures:
    """What a run has written: the ids of failed tests, reasons of marked ones, and the exit status."""

    steady: tuple[str, ...]
    unsteady: dict[str, str]
    status: int

    @property
    def refusal(self) -> str:
        """Why nothing runs again; empty if the failed tests may."""
        if self.status != _TESTS_FAILED or not (self.steady or self.unsteady):
            return f"pytest ended with status {self.status}"
        if self.steady:
            return f"{len(self.steady)} failed that are not marked as unsteady"
        if len(self.unsteady) > MAX_AGAIN:
            return f"{len(self.unsteady)} failed, and at most {MAX_AGAIN} run again"
        return ""


def read_failures(text: str) -> Failures:
    """Parse the file that `FailureList` writes."""
    steady: dict[str, None] = {}
    unsteady: dict[str, str] = {}
    status = -1
    for line in text.splitlines():
        kind, name, reason = line.split("\t")
        if kind == _EXIT:
            status = int(name)
        elif kind == _UNSTEADY:
            unsteady[name] = reason
        else:
            steady[name] = None
    return Failures(tuple(steady), unsteady, status)


def run_again(failures: Failures) -> Failures:
    """Run the marked tests alone, all in one process, and return what failed."""
    with tempfile.TemporaryDirectory() as folder:
        arguments, failed = Path(folder) / "tests", Path(folder) / "failed"
        arguments.write_text("".join(f"{name}\n" for name in failures.unsteady), encoding="utf-8")
        pytest.main(["-n", "0", f"@{arguments}"], plugins=[FailureList(failed)])
        return read_failures(failed.read_text(encoding="utf-8"))


def main(file: Path) -> int:
    """Give the failed tests their second chance; return 0 if all of them passed now."""
    failures = read_failures(file.read_text(encoding="utf-8") if file.exists() else "")
    if failures.refusal:
        print(f"\nno test runs again: {failures.refusal}")
        return 1
    print(f"\n== UNSTEADY: {len(failures.unsteady)} failed and run once more, alone")
    for name, reason in failures.unsteady.items():
        print(f"   {name} ({reason})")
    sys.stdout.flush()
    again = run_again(failures)
    failed = {*again.steady, *again.unsteady}
    for verdict, names in (
        ("failed again", [name for name in failures.unsteady if name in failed]),
        ("passed now: find out why, or they will fail again", [one for one in failures.unsteady if one not in failed]),
    ):
        if names:
            print(f"\n== UNSTEADY: {verdict}")
            print("".join(f"   {name}\n" for name in names), end="")
    return 1 if again.status else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
