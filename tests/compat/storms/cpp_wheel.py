"""The C++ client: the wheel `rocketmq` from PyPI, unpacked once into `build/compat` (ignored by git)."""

import fcntl
import subprocess
import sys
from pathlib import Path

from tests.compat.maven import BUILD

CPP_WHEEL_VERSION = "0.4.4"
CPP_PROGRAM = Path(__file__).resolve().parents[1] / "cpp" / "storm.py"
_LIMIT_S = 120


class WheelMissingError(Exception):
    """pip could not fetch the wheel, or it does not load on this machine; the text says why."""


def wheel_folder() -> Path:
    """Where the package `rocketmq` is.  Raises WheelMissingError."""
    target = BUILD / "cpp"
    stamp = target / "stamp"
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != CPP_WHEEL_VERSION:
            wanted = f"rocketmq=={CPP_WHEEL_VERSION}"
            install = ["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--upgrade"]
            _run([*install, "--target", str(target), wanted], "pip could not fetch it")
            _run(["-c", f"import sys; sys.path.insert(0, {str(target)!r}); import rocketmq.client"], "it does not load")
            stamp.write_text(CPP_WHEEL_VERSION)
    return target


def _run(arguments: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise WheelMissingError(f"{what}: not done in {_LIMIT_S} s") from late
    if done.returncode != 0:
        raise WheelMissingError(f"{what}: {done.stderr[-500:]}")
