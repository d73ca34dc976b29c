"""SPROCKET_ENGINE chooses between the compiled engine and pure Python, and everything reports the one in use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sprocket.engine import choice
from sprocket.engine.choice import EngineMissing, choose

ROOT = Path(choice.__file__).parents[2]
is_built = pytest.mark.skipif(not list(ROOT.glob("store/**/*.so")), reason="the compiled engine is not built")


def python(*command: str, engine: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "SPROCKET_ENGINE": engine}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)


def test_the_engine_is_built_where_there_is_a_compiler() -> None:
    if shutil.which("cc") or shutil.which("gcc"):
        assert choose("auto").name == "native", choose("auto").reason + ": run `make engine`"


@is_built
def test_auto_takes_the_compiled_engine() -> None:
    for wanted in ("", "auto", "native"):
        assert choose(wanted).name == "native"
        assert set(choose(wanted).modules) == set(choice.MODULES)


def test_pure_python_is_always_there() -> None:
    engine = choose("python")
    assert (engine.name, dict(engine.modules)) == ("python", {})


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(EngineMissing, match="set it to auto, native or python"):
        choose("cython")


@is_built
@pytest.mark.parametrize("source", ["store/scan/scan_native.pyx", "broker/pull/kernel_native.pyx"])
def test_an_engine_of_other_sources_is_not_used(tmp_path: Path, source: str) -> None:
    changed = tmp_path / source
    changed.parent.mkdir(parents=True)
    changed.write_text("# changed since\n")
    engine = choose("auto", tmp_path)
    assert (engine.name, engine.reason) == ("python", "the compiled engine was built from other sources")
    with pytest.raises(EngineMissing, match=r"other sources.*make engine"):
        choose("native", tmp_path)


@is_built
def test_a_wheel_has_no_sources_to_compare_with(tmp_path: Path) -> None:
    assert choose("native", tmp_path).name == "native"


@pytest.mark.parametrize("engine", ["python", pytest.param("native", marks=is_built)])
def test_the_version_names_the_engine(engine: str) -> None:
    assert python("-m", "sprocket_cli", "--version", engine=engine).stdout.endswith(f", engine {engine}\n")


@pytest.mark.parametrize("engine", ["python", pytest.param("native", marks=is_built)])
def test_the_scanner_comes_from_the_engine(engine: str) -> None:
    module = "store.scan.compiled" if engine == "native" else "store.scan.plain"
    code = "from store.scan.engine import batches; print(batches.__module__)"
    assert python("-c", code, engine=engine).stdout.strip() == module


def test_a_client_loads_no_store(tmp_path: Path) -> None:
    code = "import sprocket.remoting.channel, sys; print('numpy' in sys.modules, 'store' in sys.modules)"
    assert python("-c", code, engine="auto").stdout.split() == ["False", "False"]
