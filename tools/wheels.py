"""Wheels with the compiled engine, for both processors, and one without it for any system.

They are made, tested in empty environments, and used by `make setup`.  `make wheels` runs it.  zig compiles for either
processor and links against the glibc that the tag names, so this needs neither a container nor a second compiler.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from sprocket.engine.choice import MODULES, digests

ROOT: Final = Path(__file__).resolve().parents[1]
DIST: Final = ROOT / "dist"
LOCK: Final = ROOT / "requirements.lock"
MACHINES: Final = ("x86_64", "aarch64")
# The oldest that the wheels of numpy run on.
GLIBC: Final = "2.28"
ROUND_TRIP: Final = """
import asyncio, sys, sprocket
async def main():
    async with sprocket.connect(sys.argv[1]) as mq:
        await mq.producer().send(sprocket.Message("Wheels", b"received"))
        async for message in mq.consumer("readers", "Wheels", consume_from=sprocket.ConsumeFrom.FIRST):
            await message.ack()
            print(message.body.decode())
            break
asyncio.run(main())
"""


def run(*command: object, cwd: Path = ROOT, changed: Mapping[str, str] | None = None) -> str:
    """Return what a command prints, with `changed` variables in its environment.  Raises CalledProcessError."""
    variables = {name: value for name, value in os.environ.items() if name != "SPROCKET_ENGINE"} | dict(changed or {})
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def environment(python: str, folder: Path, *packages: object) -> Path:
    """Make an environment with `packages` in `folder`; return its interpreter."""
    run(python, "-m", "venv", "--clear", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--constraint", LOCK, *packages)
    return inside


def build(python: Path, version: str, machine: str, folder: Path) -> Path:
    """Make the wheel of one interpreter, such as `version` 312, for `machine`; return its path."""
    compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC}"
    # The names are those of setuptools and sysconfig.  The interpreter's own CFLAGS are for its compiler and machine.
    cross = {
        "CC": compiler,
        "CFLAGS": "-fwrapv -DNDEBUG -w",
        "LDSHARED": f"{compiler} -shared -s",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-{machine}-linux-gnu.so",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "PYTHONWARNINGS": "ignore",
    }
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    # A folder of its own: a module that has been removed since would stay in the usual one.
    base, made = folder / f"build-{version}-{machine}", folder / f"made-{version}-{machine}"
    run(
        python, "setup.py", "--quiet", "build", "--build-base", base,
        "bdist_wheel", "--plat-name", tag, "--bdist-dir", base / "wheel", "--dist-dir", made,
        changed=cross,
    )  # fmt: skip
    (wheel,) = made.iterdir()
    DIST.mkdir(exist_ok=True)
    return Path(shutil.move(wheel, DIST / wheel.name))


def build_pure(python: Path, folder: Path) -> Path:
    """Make the wheel without the engine, for any system; return its path."""
    run(
        python, "setup.py", "--quiet", "build", "--build-base", folder / "build-pure",
        "bdist_wheel", "--bdist-dir", folder / "pure-files", "--dist-dir", folder / "made-pure",
        changed={"SPROCKET_ENGINE": "python", "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    (wheel,) = (folder / "made-pure").iterdir()
    return Path(shutil.move(wheel, DIST / wheel.name))


def check(interpreter: Sequence[object], folder: Path, engine: str = "native", **variables: str) -> None:
    """Start `sprocket standalone`, send and receive, all with what `interpreter` has installed and no compiler on PATH.

    Raises CalledProcessError, or AssertionError if something does not respond as it should.
    """
    own = {"SPROCKET_ENGINE": engine, "PATH": str(folder), **variables}
    said = run(*interpreter, "-m", "sprocket.engine.choice", cwd=folder, changed=own)
    assert said.startswith(f"Engine: {engine}"), said
    command = [*map(str, interpreter), "-m", "sprocket_cli", "standalone", "--json", "--store", str(folder / "store")]
    command += ["--port", "0", "--namesrv-port", "0", "--set", "mappedFileSizeCommitLog=16777216"]
    with subprocess.Popen(command, cwd=folder, env=os.environ | own, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            address = json.loads(broker.stdout.readline())["namesrvAddr"]
            said = run(*interpreter, "-c", ROUND_TRIP, address, cwd=folder, changed=own)
            assert said == "received", said
        finally:
            broker.terminate()


def check_foreign(python: Path, version: str, wheel: Path, sysroot: Path, folder: Path) -> bool:
    """Check a wheel for aarch64 under qemu, with the Python below `sysroot`; return False if it has none."""
    name = f"python3.{version[1:]}"
    interpreter = ("qemu-aarch64-static", "-L", sysroot, sysroot / "usr" / "bin" / name)
    if not interpreter[-1].exists():
        return False
    run(
        python, "-m", "pip", "install", "--quiet", "--constraint", LOCK, "--target", folder / "packages",
        "--only-binary", ":all:", "--no-compile",
        *(word for glibc in ("2_28", "2_27", "2_17") for word in ("--platform", f"manylinux_{glibc}_aarch64")),
        "--platform", "manylinux2014_aarch64", f"{wheel}[server]",
    )  # fmt: skip
    emulator = shutil.which(str(interpreter[0])) or interpreter[0]
    check((emulator, *interpreter[1:]), folder, PYTHONPATH=str(folder / "packages"))
    return True


def make(pythons: Sequence[str], sysroot: Path | None) -> None:
    """Make and check the wheels of some interpreters; `sysroot` has Pythons for aarch64 and their libraries."""
    for python in pythons:
        version = run(python, "-c", "import sys; print(*sys.version_info[:2], sep='')")
        with tempfile.TemporaryDirectory(prefix="sprocket-wheels-") as name:
            folder = Path(name)
            builder = environment(python, folder / "builder", "setuptools", "cython")
            own, foreign = (build(builder, version, machine, folder) for machine in MACHINES)
            pure = build_pure(builder, folder)
            for name in ("own", "pure", "foreign"):
                (folder / name).mkdir()
            done = "`sprocket standalone`, a send and a receive"
            check([environment(python, folder / "empty", f"{own}[server]")], folder / "own")
            print(f"{own.name}: {done}")
            check([environment(python, folder / "empty", f"{pure}[server]")], folder / "pure", "python")
            print(f"{pure.name}: {done}")
            tested = sysroot is not None and check_foreign(builder, version, foreign, sysroot, folder / "foreign")
            print(f"{foreign.name}: {done if tested else 'not tested, for want of an interpreter'}")


def engine_of(wheel: Path, wanted: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the modules of a wheel by path; empty unless it has all that are `wanted`, each with its digest inside."""
    with ZipFile(wheel) as archive:
        if not set(wanted) <= set(archive.namelist()):
            return {}
        modules = {name: archive.read(name) for name in wanted}
    return modules if all(wanted[name] in module for name, module in modules.items()) else {}


def use() -> bool:
    """Copy into this checkout the engine of a wheel made from its sources; return whether there is one for Python."""
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    sources = digests(ROOT, MODULES)
    wanted = {name.replace(".", "/") + suffix: sources[name].encode() for name in MODULES}
    for wheel in sorted(DIST.glob("sprocket_mq-*.whl"), key=lambda path: path.stat().st_mtime, reverse=True):
        modules = engine_of(wheel, wanted)
        for name, module in modules.items():
            # A new file: a process may have the old one mapped.
            (ROOT / name).unlink(missing_ok=True)
            (ROOT / name).write_bytes(module)
        if modules:
            print(f"Engine of {wheel.relative_to(ROOT)}, made from these sources")
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", help="interpreters to make wheels for")
    parser.add_argument("--aarch64", type=Path, help="folder with the files of an aarch64 system, to test under qemu")
    parser.add_argument("--use", action="store_true", help="copy a wheel's engine; exit status 1 if there is none")
    options = parser.parse_args()
    if options.use:
        return 0 if use() else 1
    make(options.pythons, options.aarch64)
    return 0


if __name__ == "__main__":
    sys.exit(main())
