"""Environments that hold nothing but what a test puts there."""

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = (
    "sprocket",
    "sprocket_cli",
    "namesrv",
    "controller",
    "broker",
    "store",
    "ha",
    "acl",
    "proxy",
    "spark",
    "replicate",
    "conf",
)
_FILES = ("setup.cfg", "pyproject.toml", "README.md", "MANIFEST.in", "LICENSE")


def build_wheel(folder: Path) -> Path:
    """Return a wheel of this checkout, built in `folder`: without setup.py, which builds the engine, so it is quick."""
    tree = folder / "tree"
    for name in _PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))
    for name in _FILES:
        shutil.copy(ROOT / name, tree)
    code = "from setuptools import build_meta; build_meta.build_wheel('wheels')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tree / "wheels").iterdir()
    return wheel


class Environment:
    """A virtual environment in `folder`, without pip, with the wheel and the packages named, which are copied here."""

    def __init__(self, folder: Path, wheel: Path, packages: tuple[str, ...]) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        for package in packages:
            self.copy(package, self.site)
        # With dependencies: pip refuses if the wheel needs more than was copied, for there is no index.
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check", "install"]
        self.log = subprocess.run(
            [*pip, "--no-index", "--no-compile", "--find-links", str(folder), str(wheel)],
            capture_output=True,
            text=True,
            env={**os.environ, "PIP_FIND_LINKS": ""},
            check=False,
        )

    def copy(self, package: str, to: Path) -> None:
        """Copy an installed package to the folder `to`."""
        for file in distribution(package).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = to.joinpath(*file.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(file.locate())), target)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment's `bin`; variables that would change it are left out."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        command = [str(self.folder / "bin" / words[0]), *words[1:]]
        return subprocess.run(
            command, cwd=self.folder, env=kept | variables, capture_output=True, text=True, timeout=120, check=False
        )
