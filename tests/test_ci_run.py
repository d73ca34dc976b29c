"""`.ci/run` with programs that only say what they were asked: what passes, what fails, and what has a second chance."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_MAKE = """#!/bin/sh
echo "make $*"
for word in "$@"; do case "$word" in ARGS=*) file=${word##* };; esac; done
if [ -e failures ]; then cp failures "$file"; exit 2; fi
exit "$(cat status)"
"""
_PYTHON = """#!/bin/sh
case "$*" in
*tests.unsteady*) PYTHONPATH={root} exec {python} "$@" ;;
*) echo "python $*" ;;
esac
"""
_TOOL = '#!/bin/sh\necho "$(basename "$0") $*"\nexit "$(cat "$(basename "$0").status" 2>/dev/null || echo 0)"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder that looks like the project to `.ci/run`."""
    for folder in (".ci", ".venv/bin", "bin", "examples"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "examples" / "one.py").touch()
    (tmp_path / "status").write_text("0")
    (tmp_path / "test_it.py").write_text("def test_passes_alone(): ...\ndef test_fails(): assert False\n")
    programs = {"bin/make": _MAKE, ".venv/bin/python": _PYTHON.format(root=ROOT, python=sys.executable)}
    programs |= {f".venv/bin/{tool}": _TOOL for tool in ("ruff", "mypy", "lint-imports")}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(project: Path) -> tuple[int, str]:
    """Return the status and the output."""
    environment = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["sh", str(project / ".ci" / "run")],
        env=environment, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    return ended.returncode, ended.stdout


def test_all_is_asked_and_passes(project: Path) -> None:
    status, output = run(project)
    assert (status, output.splitlines()[-1]) == (0, "all checks passed")
    asked = ("make test ALL=1 ARGS=--failures-to", "ruff check", "ruff format --check", "mypy --strict", "tests/tidy")
    assert [words for words in asked if words not in output] == []


@pytest.mark.parametrize(
    ("failures", "status", "said"),
    [
        ("unsteady\ttest_it.py::test_passes_alone\tclocks\nexit\t1\t\n", 0, "== UNSTEADY: passed now"),
        ("unsteady\ttest_it.py::test_fails\tclocks\nexit\t1\t\n", 1, "== UNSTEADY: failed again"),
        ("steady\ttest_it.py::test_passes_alone\t\nexit\t1\t\n", 1, "no test runs again: 1 failed that are not marked"),
    ],
)
def test_failed_tests(project: Path, failures: str, status: int, said: str) -> None:
    (project / "failures").write_text(failures)
    ended, output = run(project)
    assert ended == status, output
    assert said in output
    assert ("FAILED: make test;" in output) == bool(status)


def test_a_run_that_writes_nothing_fails(project: Path) -> None:
    (project / "status").write_text("2")
    assert run(project)[0] == 1


def test_a_failed_check_fails_the_run_and_the_others_run(project: Path) -> None:
    (project / "mypy.status").write_text("1")
    status, output = run(project)
    assert (status, output.splitlines()[-1]) == (1, "FAILED: mypy --strict; mypy --strict of the examples;")
    assert "lint-imports" in output


def test_what_it_names_exists() -> None:
    """Pytest runs nothing at all if one of its paths is missing."""
    named = re.findall(r"(?<=\s)tests/[\w/.]+", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert len(named) > 5
    assert [word for word in named if not (ROOT / word).exists()] == []
