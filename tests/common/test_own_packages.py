"""A user's package that hides one of ours: the error names it and says what to do."""

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from sprocket.common.own_packages import OWN_PACKAGES, SERVER_PACKAGES

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize(
    ("name", "command"), [("ha", "broker"), ("proxy", "mqproxy"), ("broker", "doctor"), ("store", "store")]
)
def test_a_command_names_the_package_that_hides_ours(tmp_path: Path, name: str, command: str) -> None:
    (tmp_path / f"{name}.py").write_text("")
    program = "mqproxy" if command == "mqproxy" else "sprocket"
    arguments = [program, *([command] if command != program else []), "--help"]
    said = run(
        tmp_path, f"import sys; sys.argv = {arguments}; from sprocket_cli.programs import {program}; {program}()"
    )
    assert said.startswith(f"Error: cannot import Sprocket's package '{name}' from "), said
    assert f"{tmp_path / f'{name}.py'} hides it" in said


@pytest.mark.parametrize("module", ["sprocket_cli.server", "sprocket.spark"])
def test_a_package_that_ours_hides_is_named_once(tmp_path: Path, module: str) -> None:
    (tmp_path / "other" / "store").mkdir(parents=True)
    (tmp_path / "other" / "store" / "__init__.py").write_text("")
    paths = [str(ROOT), str(tmp_path / "other")]
    program = f"import sys; sys.path += {paths}; import {module}, sprocket_cli.server"
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    warned = [
        line for line in outcome.stderr.splitlines() if "RuntimeWarning: Sprocket's package 'store' hides" in line
    ]
    assert len(warned) == 1, outcome.stderr
    assert str(tmp_path / "other" / "store") in warned[0]


def test_the_flat_packages_are_those_of_the_wheel() -> None:
    file = ConfigParser()
    file.read(ROOT / "setup.cfg")
    named = {line.rstrip("*") for line in file["options.packages.find"]["include"].split()}
    assert {*OWN_PACKAGES, "sprocket", "sprocket_cli"} == named
    assert set(OWN_PACKAGES) - set(SERVER_PACKAGES) == {"spark"}


def test_a_folder_of_data_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert run(tmp_path, "import sprocket.spark") == ""


def test_our_own_packages_pass(tmp_path: Path) -> None:
    assert run(tmp_path, "from sprocket import Leases, TlsSettings; import sprocket.spark, spark.source") == ""
