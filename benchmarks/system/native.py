"""Compiles the benchmark's C sources with the system's compiler, once per content."""

import hashlib
import shutil
import subprocess
from pathlib import Path

_HERE = Path(__file__).resolve().parent
BUILD = _HERE.parents[1] / "build" / "bench"


def compiler() -> str | None:
    """The path of a C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compiled(source: str, *, shared: bool) -> Path:
    """The program or shared library made of `source` beside this file.  Raises RuntimeError."""
    path = _HERE / source
    included = (_HERE.parents[1] / "sprocket" / "engine" / "store" / "crc32.h", _HERE / "connections.h")
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in (path, *included))).hexdigest()[:16]
    target = BUILD / f"{path.stem}-{digest}{'.so' if shared else ''}"
    if target.exists():
        return target
    command = compiler()
    if command is None:
        raise RuntimeError("no C compiler: cc, gcc or clang")
    BUILD.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    options = ["-shared", "-fPIC"] if shared else []
    done = subprocess.run(
        [command, "-O2", *options, "-o", str(partial), str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{source} does not compile:\n{done.stderr}")
    partial.rename(target)
    return target
