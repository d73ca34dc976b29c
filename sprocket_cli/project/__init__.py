"""The project that `sprocket init` writes: templates as package data, and the place of each in a project."""

import keyword
import re
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sprocket.common.errors import SprocketError

# Template and place; `{name}` in a place, and `@name@` in a template, is the project's name.
_TEMPLATES: Final = {
    "README.md.txt": "README.md",
    "pyproject.toml.txt": "pyproject.toml",
    "gitignore.txt": ".gitignore",
    "compose.yaml.txt": "compose.yaml",
    "Containerfile.txt": "Containerfile",
    "wheels.txt": "wheels/README.txt",
    "ci.yml.txt": ".github/workflows/ci.yml",
    "package.py.txt": "{name}/__init__.py",
    "orders.py.txt": "{name}/orders.py",
    "app.py.txt": "{name}/app.py",
    "worker.py.txt": "{name}/worker.py",
    "test_worker.py.txt": "tests/test_worker.py",
}
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TAKEN: Final = frozenset({"tests", "wheels"})


class ProjectRefused(SprocketError):
    """A project that cannot be written: its name, or what is in its folder."""


def name_problem(name: str) -> str | None:
    """Return why `name` cannot be a project's package, None if it can."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        return f"{name!r} is no name of a Python package: use lower-case letters, digits and _, with a letter first"
    if name in sys.stdlib_module_names or name in _TAKEN or find_spec(name) is not None:
        return f"{name!r} is the name of a module that is there already: choose another name"
    return None


def write_project(name: str, folder: Path) -> list[Path]:
    """Write a project into `folder`, which does not exist or is empty; return its files, relative to it.

    Raises ProjectRefused before anything is written, and OSError.
    """
    problem = name_problem(name)
    if problem is not None:
        raise ProjectRefused(problem)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectRefused(f"{folder} exists and is not an empty folder: choose another name or --folder")
    written = []
    for template, place in _TEMPLATES.items():
        text = files("sprocket_cli").joinpath("project", template).read_text(encoding="utf-8")
        path = Path(place.format(name=name))
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace("@name@", name), encoding="utf-8")
        written.append(path)
    return written
