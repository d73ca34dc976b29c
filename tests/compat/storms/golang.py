"""The Go client's program, built once per content of its sources into `build/compat` (ignored by git)."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.compat.maven import BUILD

GO_SOURCES = Path(__file__).resolve().parents[1] / "go"
GO_CLIENT_VERSION = "2.1.2"
_BUILD_LIMIT_S = 300


class GoMissingError(Exception):
    """Go is not here, or could not fetch the client; the text says which."""


def storm_program() -> Path:
    """The program that obeys a storm's orders.  Raises GoMissingError, or RuntimeError when it does not compile."""
    go = shutil.which("go")
    if go is None:
        raise GoMissingError("go is not on PATH")
    sources = sorted(path for path in GO_SOURCES.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    target = BUILD / "go"
    program, stamp = target / "storm", target / "stamp"
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != digest:
            _build(go, program)
            stamp.write_text(digest)
    return program


def _build(go: str, program: Path) -> None:
    for arguments in (["mod", "download"], ["build", "-o", str(program), "."]):
        try:
            done = subprocess.run(
                [go, *arguments], cwd=GO_SOURCES, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise GoMissingError(f"go {arguments[0]} was not done in {_BUILD_LIMIT_S} s") from late
        if done.returncode != 0 and arguments[0] == "mod":
            raise GoMissingError(f"go could not fetch the client: {done.stderr[-1000:]}")
        if done.returncode != 0:
            raise RuntimeError(f"the Go program does not compile:\n{done.stderr}")
