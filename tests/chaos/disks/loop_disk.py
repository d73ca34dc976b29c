"""File systems in image files, mounted where nobody else sees them: run inside ``unshare -m``, as root.

What the kernel holds in its page cache for such a file system is not in the image, so a copy of the image is what a
disk would hold after a power cut.  The images lie on a tmpfs of their own.
"""

import ctypes
import gc
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
# Exit status of a program that may not mount.
SKIPPED: Final = 77
_COPY_TRIES: Final = 20
_UNMOUNT_PAUSE_S: Final = 0.5
# Start writing the pages of a range, and wait for it; sync_file_range(2).
_WRITE_AND_WAIT: Final = 1 | 2 | 4
_libc = ctypes.CDLL(None, use_errno=True)


class CannotMount(Exception):
    """This process may not mount what is needed; the text says what was refused."""


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise CannotMount(f"{' '.join(command)}: {detail}") from None


def fill(filler: Path, left_bytes: int = 0) -> None:
    """Fill the file system of `filler` with that file, up to about `left_bytes`.  All of it is the caller's: root's."""
    space = os.statvfs(filler.parent)
    size = space.f_bfree * space.f_frsize - left_bytes
    with filler.open("wb") as file:
        while size > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, size // 4096 * 4096)
                return
            except OSError:
                size -= MIB // 8  # the file system keeps some of what it says is free


def mount_tmpfs(directory: Path, size_mib: int) -> None:
    """Mount an empty tmpfs; raises CannotMount."""
    directory.mkdir(parents=True, exist_ok=True)
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(directory))


class LoopDisk:
    """One image file with an ext4 in it, and where it is mounted."""

    def __init__(self, image: Path) -> None:
        self.image = image
        self.root = image.with_name(f"{image.name}.mounted")

    @classmethod
    def make(cls, image: Path, size_mib: int) -> "LoopDisk":
        """An empty file system.  Raises CannotMount."""
        with image.open("wb") as file:
            file.truncate(size_mib * MIB)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
        return cls(image)

    def mount(self, options: str = "") -> None:
        """Mount it, which replays its journal.  Raises CannotMount.

        The journal commits when somebody syncs and not by the clock, so that no commit falls into a copy.
        """
        self.root.mkdir(exist_ok=True)
        _run("mount", "-o", ",".join(filter(None, ("loop", "commit=300", options))), str(self.image), str(self.root))

    def unmount(self) -> None:
        """Unmount it; raises CannotMount while a process has a file of it open."""
        try:
            _run("umount", str(self.root))
        except CannotMount:
            # Mappings of a store that was read here live until their cycles are collected.
            gc.collect()
            time.sleep(_UNMOUNT_PAUSE_S)
            _run("umount", str(self.root))

    def remove(self) -> None:
        """Unmount and delete it."""
        self.unmount()
        self.image.unlink()

    def copy(self, image: Path) -> "LoopDisk":
        """The disk as it is this very moment, while it is mounted and nobody syncs.

        Raises AssertionError when the kernel wrote to it during every try: the copy would be of no one moment.
        """
        for _ in range(_COPY_TRIES):
            before = self._sectors_written()
            subprocess.run(["cp", "--sparse=always", str(self.image), str(image)], check=True)
            if self._sectors_written() == before:
                return LoopDisk(image)
            time.sleep(0.01)
        raise AssertionError(f"{self.image} was written to during each of {_COPY_TRIES} copies")

    def duplicate(self, image: Path) -> "LoopDisk":
        """A copy of a disk that is not mounted."""
        subprocess.run(["cp", "--sparse=always", str(self.image), str(image)], check=True)
        return LoopDisk(image)

    def _sectors_written(self) -> str:
        device = self.root.stat().st_dev
        path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        return path.read_text().split()[6]

    def write_back_some(self, dice: random.Random, directory: Path, files: int = 6, ranges: int = 4) -> None:
        """Let the kernel write some pages of the newest files below `directory`, as it may at any time."""
        found = sorted((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime)
        for path in found[-files:]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                size = max(1, path.stat().st_size)
                for _ in range(ranges):
                    start, count = dice.randrange(size) & ~4095, dice.choice((4096, 16384))
                    _libc.sync_file_range(descriptor, ctypes.c_int64(start), ctypes.c_int64(count), _WRITE_AND_WAIT)
            finally:
                os.close(descriptor)


def unmount_all(directory: Path) -> None:
    """Unmount what is mounted below `directory`, itself included, as far as it can be done now."""
    for mounted in sorted(directory.glob("*.mounted"), reverse=True):
        subprocess.run(["umount", "--lazy", str(mounted)], check=False, capture_output=True)
    subprocess.run(["umount", "--lazy", str(directory)], check=False, capture_output=True)
