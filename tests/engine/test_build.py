"""`make engine`, which is a part of `make setup`, with a C compiler on PATH and without one."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sprocket.engine.choice import ENGINE, MODULES, choose
from tests.engine.sources import ROOT, copy_sources

# What the recipe needs besides Python; the compiler is not among them.
TOOLS = ("make", "sh", "rm", "cat", "touch", "nproc")
pytestmark = pytest.mark.skipif(not (ROOT / ".venv" / "bin").exists(), reason="make works with .venv alone")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout that has been set up, but whose engine is not built."""
    tree = tmp_path / "tree"
    copy_sources(tree)
    for name in (
        "Makefile",
        "setup.cfg",
        "pyproject.toml",
        "requirements.lock",
        "README.md",
        "MANIFEST.in",
    ):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "conf", tree / "conf")
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (tree / ".venv" / name).symlink_to(ROOT / ".venv" / name)
    for stamp in (".build-done", ".setup-done"):
        (tree / ".venv" / stamp).touch()
    return tree


@pytest.fixture
def translated_tree(tree: Path) -> Path:
    """The same with what Cython has made of the sources, if it is here: to make it takes longer than such a test."""
    for name in MODULES:
        made = Path(*name.split(".")).with_suffix(".c")
        if (ROOT / made).exists():
            shutil.copy(ROOT / made, tree / made)
    return tree


def make_engine(tree: Path, path: str) -> str:
    # The tests themselves may run below make, which says more then.
    ignored = ("CC", "SPROCKET_ENGINE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in ignored}
    done = subprocess.run(
        ["make", "engine"], cwd=tree, env={**environment, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def built(tree: Path) -> list[str]:
    packages = {name.partition(".")[0] for name in MODULES}
    found = [path.relative_to(tree) for package in packages for path in (tree / package).glob("**/*.so")]
    return sorted(".".join((*path.parent.parts, path.name.partition(".")[0])) for path in found)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_with_a_compiler(tree: Path, tmp_path: Path) -> None:
    # How well it optimizes is not tested, and takes half of the time.
    compiler = tmp_path / "bin" / "gcc"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("gcc")} "$@" -O0\n')
    compiler.chmod(0o755)
    compiling, engine = make_engine(tree, f"{compiler.parent}:{os.environ['PATH']}").splitlines()
    assert compiling.startswith(f"Compiling the engine: {len(MODULES)} modules on ")
    assert engine == "Engine: native (compiled)"
    assert built(tree) == sorted(MODULES)


@pytest.mark.skipif(ENGINE.name != "native", reason="the engine is not built")
def test_a_wheel_from_these_sources_is_used_instead_of_a_compiler(tree: Path) -> None:
    (tree / "dist").mkdir()
    wheel = tree / "dist" / "sprocket_mq-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for module in choose("native").modules.values():
            path = Path(str(module.__file__))
            archive.write(path, path.relative_to(ROOT))
    found, engine = make_engine(tree, "/usr/bin:/bin").splitlines()
    assert found == f"Engine of dist/{wheel.name}, made from these sources"
    assert engine == "Engine: native (compiled)"
    assert built(tree) == sorted(MODULES)

    source = tree.joinpath(*MODULES[0].split(".")).with_suffix(".pyx")
    source.write_text(source.read_text() + "# another source\n")
    done = subprocess.run([sys.executable, "-m", "tools.wheels", "--use"], cwd=tree, check=False)
    assert done.returncode == 1


def test_without_a_compiler_one_line_says_what_it_costs(translated_tree: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name}"))
    _, said = make_engine(translated_tree, str(tools)).splitlines()
    assert said.startswith("Engine: python, because the compiled engine is not built. Everything works; ")
    assert "install a C compiler" in said
    assert built(translated_tree) == []


def test_pip_compiles_nothing_if_python_is_the_engine(tree: Path) -> None:
    """`make setup` installs so: it compiles the engine once, afterwards."""
    environment = {**os.environ, "SPROCKET_ENGINE": "python"}
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=tree, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert built(tree) == []


def test_pip_installs_without_a_compiler(translated_tree: Path, tmp_path: Path) -> None:
    """What pip runs to make a wheel: the build of the engine fails, and the wheel has pure Python alone."""
    code = "from setuptools import build_meta; print(build_meta.build_wheel('wheels'))"
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("CC", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=translated_tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (translated_tree / "wheels").iterdir()
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(wheel)], capture_output=True, text=True, check=True
    ).stdout
    assert "sprocket/engine/choice.py" in listed
    assert ".so" not in listed and ".pyx" not in listed
