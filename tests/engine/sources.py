"""Copies of what the compiled modules are built from."""

import shutil
from pathlib import Path

from sprocket.engine.choice import MODULES

ROOT = Path(__file__).resolve().parents[2]


def copy_sources(tree: Path) -> None:
    """Copy the sources of the engine, without what was built from them."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
    shutil.copytree(ROOT / "sprocket" / "engine", tree / "sprocket" / "engine", ignore=ignored)
    shutil.copy(ROOT / "setup.py", tree)
    for name in MODULES:
        *packages, module = name.split(".")
        # Cython looks for the declarations of a module by the names of its packages.
        for depth in range(1, len(packages) + 1):
            folder = Path(*packages[:depth])
            (tree / folder).mkdir(exist_ok=True)
            shutil.copy(ROOT / folder / "__init__.py", tree / folder)
        for source in ROOT.joinpath(*packages).glob(f"{module}.p*"):
            shutil.copy(source, tree.joinpath(*packages))
