"""Programs of Debian's packages for tests, where they are not installed: unpacked in `build`, without root's rights."""

import fcntl
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_BUILD: Final = Path(__file__).resolve().parents[1] / "build" / "compat"
# Limit of each of three steps.  Together they end before the usual limit of a test.
_LIMIT_S: Final = 60.0


class PackageMissingError(Exception):
    """The packages could not be fetched; the text says why and what to install."""


def unpacked(packages: Sequence[str], limit_s: float = _LIMIT_S) -> Path:
    """Return the folder of the unpacked packages.  The first package is the program's.

    They are fetched once; `limit_s` is the limit of each of three steps.  Raises PackageMissingError.
    """
    target = _BUILD / f"{packages[0]}-{platform.machine()}"
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "stamp").exists():
            _fetch(target, packages, limit_s)
            (target / "stamp").touch()
    return target / "tree"


def _fetch(target: Path, packages: Sequence[str], limit_s: float) -> None:
    """Fetch with lists of our own: an image has none, and only root may renew the system's."""
    folders = {name: target / name for name in ("state", "cache")}
    for folder in (folders["state"] / "lists/partial", folders["cache"] / "archives/partial", target / "tree"):
        folder.mkdir(parents=True, exist_ok=True)
    options = ["-q", "-o", f"Dir::State={folders['state']}", "-o", f"Dir::Cache={folders['cache']}"]
    options += ["-o", "Dir::State::status=/dev/null", "-o", "APT::Sandbox::User="]
    _run(target, packages[0], limit_s, "apt-get", *options, "update")
    _run(target, packages[0], limit_s, "apt-get", *options, "download", *packages)
    for package in target.glob("*.deb"):
        _run(target, packages[0], limit_s, "dpkg-deb", "-x", str(package), str(target / "tree"))
        package.unlink()
    for folder in folders.values():
        shutil.rmtree(folder)


def _run(folder: Path, package: str, limit_s: float, *command: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageMissingError(f"needs {package}: apt-get install {package} ({error})") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-500:]
        raise PackageMissingError(f"needs {package}: apt-get install {package} ({command[0]}: {said})")
