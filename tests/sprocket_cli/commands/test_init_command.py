"""The project that `sprocket init` writes passes its own tests and style."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from sprocket_cli import exit_codes
from sprocket_cli.main import main


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "corner_shop"
    done = CliRunner().invoke(main, ["init", "corner_shop", "--folder", str(folder)])
    assert done.exit_code == 0, done.output
    assert all(Path(line).is_file() for line in done.output.splitlines()[:-1])
    return folder


def run(project: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=project, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_tests_pass(project: Path) -> None:
    assert "1 passed" in run(project, "pytest", "-q", "-p", "no:cacheprovider")


def test_its_style_is_clean(project: Path) -> None:
    run(project, "ruff", "check", "--no-cache")
    run(project, "ruff", "format", "--check", "--no-cache")


def test_its_files_name_it_and_commands_that_exist(project: Path) -> None:
    found = (path for path in project.rglob("*") if path.is_file() and path.suffix != ".pyc")
    texts = {path.relative_to(project): path.read_text() for path in found}
    assert not [path for path, text in texts.items() if "@name@" in text]
    # CI installs from wheels/, and an image has no store of a broker.
    assert "wheels" not in texts[Path(".gitignore")] and "COPY . " not in texts[Path("Containerfile")]
    services = yaml.safe_load(texts[Path("compose.yaml")])["services"]
    program, name, *options = services["broker"]["command"].split()
    assert (program, services["worker"]["command"]) == ("sprocket", "python -m corner_shop.worker")
    done = CliRunner().invoke(main, [name, *options, "-p"])
    assert done.exit_code == 0, done.output
    assert "brokerIP1=broker" in done.output


@pytest.mark.parametrize("name", ["Shop", "2shop", "a-b", "../shop", "class", "json", "store", "sprocket", "tests"])
def test_a_name_that_is_no_package_of_its_own_is_refused(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["init", name, "--folder", str(tmp_path / "new")])
    assert done.exit_code == exit_codes.USAGE, done.output
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    done = CliRunner().invoke(main, ["init", "corner_shop", "--folder", str(tmp_path)])
    assert done.exit_code == exit_codes.USAGE
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["init", "corner_shop", "--folder", str(tmp_path / "file" / "new")])
    assert done.exit_code == exit_codes.FAILURE and "cannot be written" in done.output
