"""Servers of a previous version of Sprocket, from its source code.

The source code comes from the history of this repository.  Where the history is cut off, as in a shallow clone,
``SPROCKET_PREVIOUS`` names a folder with it.
"""

import fcntl
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.compat.cluster import Server, SprocketCluster
from tests.compat.maven import BUILD, ROOT

# There is no release yet: the state of 24 November 2026, with brokers in controller mode, TLS and proxies.
PREVIOUS_COMMIT: Final = "add39983578ee7e0cdbde9d8f2f3d104b8e5c4f3"
# Folder with the source code of another previous version, such as `git archive COMMIT | tar x -C FOLDER` makes.
SOURCE_VARIABLE: Final = "SPROCKET_PREVIOUS"
# A module of the project that is imported before the first line of `before` comes from the same folder.
_RUN: Final = "import sys; sys.path.insert(0, {source!r}); {before}\nfrom {module} import main; main()"


def previous_source() -> Path:
    """Return the folder with the source code of the previous version.  Skips the test where there is none."""
    named = os.environ.get(SOURCE_VARIABLE)
    if named:
        return Path(named).absolute()
    target = BUILD / f"previous-{PREVIOUS_COMMIT[:8]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _unpack(target)
    return target


def _unpack(target: Path) -> None:
    command = ["git", "archive", "--format=tar", PREVIOUS_COMMIT, "--", *_PACKAGES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False) if shutil.which("git") else None
    if done is None or done.returncode != 0:
        pytest.skip(f"git has no commit {PREVIOUS_COMMIT[:8]} here: {SOURCE_VARIABLE} may name its source code")
    part = target.with_suffix(".part")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(part, filter="data")
    part.rename(target)


_PACKAGES: Final = ("sprocket", "namesrv", "controller", "broker", "store", "ha", "acl", "proxy")


def previous_broker(source: Path, configuration: Path) -> Sequence[str]:
    """Return the argv of a broker of the version in `source`."""
    return server_of(source, "mqbroker", configuration)


def server_of(
    source: Path, program: str, configuration: Path, *words: str, flag: str = "-c", before: str = ""
) -> Sequence[str]:
    """Return the argv of a server of the version in `source`.

    `program` is its command, `before` is Python that runs first.
    """
    commands = "sprocket_cli" if (source / "sprocket_cli").is_dir() else "sprocket.cli"
    code = _RUN.format(source=str(source), before=before, module=f"{commands}.server.{program}")
    return [sys.executable, "-c", code, flag, str(configuration), *words]


def become(server: Server, command: Sequence[str]) -> None:
    """Stop a server in order, and start it with the command of a version."""
    assert server.stop() in (0, -15), server.output.read_text()[-2000:]
    server.command = command
    server.start()


class PreviousCluster(SprocketCluster):
    """Name server of this version, and brokers of the version in `source`."""

    def __init__(self, source: Path, directory: Path, *, brokers: int = 1, properties: Mapping[str, str]) -> None:
        self._source = source
        super().__init__(directory, brokers=brokers, properties=properties)

    def broker_command(self, configuration: Path) -> Sequence[str]:
        return previous_broker(self._source, configuration)
