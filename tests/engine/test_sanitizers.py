"""The fuzz targets of the compiled engine under AddressSanitizer and UBSan: no access outside of its memory.

A minute and more: ``pytest -m slow tests/engine/test_sanitizers.py``.  docs/engine.md has the last result.
SPROCKET_FUZZ_SECONDS is the time for each target.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sprocket.engine.choice import MODULES
from tests.engine.sources import ROOT, copy_sources
from tests.fuzz.all_targets import TWIN_TARGETS

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
SECONDS = os.environ.get("SPROCKET_FUZZ_SECONDS", "30")


def runtime(name: str) -> Path:
    """Return the compiler's library of one sanitizer."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


@pytest.fixture
def sanitized(tmp_path: Path) -> Path:
    """The folder of the modules, compiled with both sanitizers from a copy of the sources."""
    if shutil.which("gcc") is None or not runtime("libasan.so").is_absolute():
        pytest.skip("no gcc with its sanitizers")
    copy_sources(tmp_path)
    environment = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": FLAGS, "CC": "gcc"}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "built"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    built = tmp_path / "built"
    assert len(list(built.rglob("*.so"))) == len(MODULES)
    return built


def run(script: list[str], seconds: float) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        # Python's objects come from malloc, so that an access next to one is seen; the interpreter itself leaks some.
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0,allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "SPROCKET_ENGINE": "python",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, *script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        timeout=seconds,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fuzz_targets_under_sanitizers(sanitized: Path) -> None:
    done = run(["-m", "tests.engine.sanitized_run", str(sanitized), SECONDS], 20 * float(SECONDS) + 600)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count(" inputs\n") == len(TWIN_TARGETS)
    print(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_sanitizers_see_an_access_outside(sanitized: Path) -> None:
    """The test of the test: a read behind the end of a buffer ends the process."""
    folder = sanitized / "store" / "scan"
    code = (
        f"import store.scan; store.scan.__path__.insert(0, {str(folder)!r})\n"
        "from store.scan import scan_native as scan\n"
        "import ctypes, array\n"
        "small = array.array('b', bytes(100))\n"
        "class Lie(ctypes.Structure): _fields_ = [('b', ctypes.c_char * 4096)]\n"
        "lie = Lie.from_address(small.buffer_info()[0])\n"
        "scan.chain(lie, 200, 4096, array.array('q', [0]), 1)\n"
    )
    done = run(["-c", code], 300)
    assert done.returncode != 0
    assert "AddressSanitizer: heap-" in done.stderr
