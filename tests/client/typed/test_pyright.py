"""What pyright says of programs that use typed topics, and of the examples."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.typed.test_types import PROGRAM

ROOT = Path(__file__).resolve().parents[3]
_LIMIT_S = 250


def said_of(*files: Path) -> list[dict[str, Any]]:
    """Return what pyright says.  Its first run fetches the version of pyright's program that the package names."""
    words = ["--pythonpath", sys.executable, "--outputjson", *map(str, files)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pyright", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"pyright was not done in {_LIMIT_S} s: could it not be fetched?")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        pytest.skip(f"pyright does not run here: {(done.stdout + done.stderr)[-500:]}")
    found: list[dict[str, Any]] = answer["generalDiagnostics"]
    assert answer["summary"]["filesAnalyzed"] == len(files), done.stdout
    return found


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What pyright says of each file, by name; one run, which is most of the time."""
    pytest.importorskip("pyright", reason="needs pyright: pip install pyright")
    program = tmp_path_factory.mktemp("pyright") / "program.py"
    program.write_text(PROGRAM)
    files = [program, *sorted((ROOT / "examples").glob("*.py"))]
    said: dict[str, list[dict[str, Any]]] = {file.name: [] for file in files}
    for item in said_of(*files):
        said[Path(item["file"]).name].append(item)
    return said


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_examples_have_no_errors(name: str, said: dict[str, list[dict[str, Any]]]) -> None:
    assert said[name] == []


def test_types(said: dict[str, list[dict[str, Any]]]) -> None:
    at: dict[int, dict[str, Any]] = {item["range"]["start"]["line"]: item for item in said["program.py"]}
    for number, line in enumerate(PROGRAM.splitlines()):
        revealed, is_error = re.search("# R: (.+)", line), "# E: " in line
        item = at.pop(number, {"severity": "none", "message": ""})
        if revealed:
            kind = re.sub(r"[\w.]+\.(\w+)", r"\1", revealed[1])  # pyright names types without their modules
            assert item["message"].endswith(f'is "{kind}"'), line
        else:
            assert item["severity"] == ("error" if is_error else "none"), line
    assert not at
