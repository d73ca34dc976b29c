"""The image of conf/container, built as the file says, but on a base of Debian's packages.

Needs root, buildah and debootstrap, Debian's mirror and PyPI; no Docker engine and no registry of images.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.compat.maven import BUILD, ROOT

CONTAINERFILE: Final = ROOT / "conf" / "container" / "Containerfile"
_BASE: Final = "localhost/python:3.11-slim"
_IMAGE: Final = "localhost/sprocket"
_SUITE: Final = "bookworm"
_PACKAGES: Final = "ca-certificates,python3-dev,python3-venv"
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_LIMIT_S: Final = 3000


def missing() -> str:
    """Return what is missing to build an image, empty if nothing is."""
    if os.geteuid() != 0:
        return "needs root"
    names = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    return f"needs {' and '.join(names)}: apt-get install {' '.join(names)}" if names else ""


class Image:
    """The image, in a storage of its own below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._buildah = (
            "buildah", "--root", str(folder / "images"), "--runroot", str(folder / "run"), "--storage-driver", "vfs",
        )  # fmt: skip
        self._make_base(_debian())
        self._buildah_run(
            "build-using-dockerfile", "--isolation", "chroot", "--build-arg", f"BASE={_BASE}", "--file",
            str(CONTAINERFILE), "--tag", _IMAGE, str(ROOT),
        )  # fmt: skip

    def _make_base(self, system: Path) -> None:
        """Make an image like python:3.11-slim of a Debian system."""
        container = self._buildah_run("from", "scratch").strip()
        self._buildah_run("add", container, str(system), "/")
        self._buildah_run("config", "--env", f"PIP_CERT={_AUTHORITIES}", container)
        self._buildah_run("commit", container, _BASE)
        self._buildah_run("rm", container)

    def _buildah_run(self, *words: str) -> str:
        done = subprocess.run([*self._buildah, *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        assert done.returncode == 0, f"buildah {words[0]}: {(done.stdout + done.stderr)[-4000:]}"
        return done.stdout

    @contextmanager
    def running(self, command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command in a new container, with this machine's network and a pipe as its input."""
        container = self._buildah_run("from", _IMAGE).strip()
        words = [*self._buildah, "run", "--isolation", "chroot", container, "--", *command]
        with output.open("wb") as into:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=into, stderr=into)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()
            self._buildah_run("rm", container)


def _debian() -> Path:
    """Return an archive of a small Debian system with Python; it is made once."""
    target = BUILD / f"debian-{_SUITE}.tar"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            folder = target.with_suffix(".tree")
            shutil.rmtree(folder, ignore_errors=True)
            command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
            assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
            # python:3.11-slim has its Python here.
            (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
            # This machine may reach PyPI by a proxy with an authority of its own.
            shutil.copyfile(_AUTHORITIES, folder / _AUTHORITIES.relative_to("/"))
            part = target.with_suffix(".part")
            subprocess.run(["tar", "-C", str(folder), "-c", "-f", str(part), "."], check=True)
            part.rename(target)
            shutil.rmtree(folder)
    return target
