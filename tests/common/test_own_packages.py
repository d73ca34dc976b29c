"""A user's package that hides one of ours: the error names it and says what to do."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(directory: Path, program: str) -> str:
    """Run `program` with `directory` first on the path, and return its last line of error output."""
    command = [sys.executable, "-c", program]
    outcome = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    return outcome.stderr.strip().splitlines()[-1] if outcome.returncode else ""


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("store", "import sprocket.spark"),
        ("spark", "import sprocket.spark"),
        ("store", "import spark.source"),  # what a Spark worker imports
        ("store", "from sprocket import Leases"),
    ],
)
def test_a_package_that_hides_ours_is_named(tmp_path: Path, name: str, program: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    said = run(tmp_path, program)
    assert said.startswith("sprocket.common.own_packages.PackageHidden: cannot import Sprocket's package"), said
    assert f"{tmp_path / name} hides it" in said
    assert "Rename your package" in said


def test_a_module_that_hides_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.py").write_text("")
    assert f"{tmp_path / 'store.py'} hides it" in run(tmp_path, "import spark.source")


def test_a_folder_of_data_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert run(tmp_path, "import sprocket.spark") == ""


def test_our_own_packages_pass(tmp_path: Path) -> None:
    assert run(tmp_path, "from sprocket import Leases, TlsSettings; import sprocket.spark, spark.source") == ""
