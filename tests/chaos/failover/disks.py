"""A disk for each host, in an image file: all of them can lose their power at one moment.

Run inside ``unshare -m``, as root.
"""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.chaos.disks.loop_disk import LoopDisk, mount_tmpfs, unmount_all

_DISK_MIB: Final = 96
_TMPFS_MIB: Final = 1600


class Disks:
    """File systems below `directory`; they end with this context.  `home` is where a host finds its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._disks: dict[str, LoopDisk] = {}
        self._cuts = 0

    def __enter__(self) -> Self:
        mount_tmpfs(self._directory, _TMPFS_MIB)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unmount_all(self._directory)

    def home(self, name: str) -> Path:
        """Return the root of a new disk.  The path stays the same when the disk is replaced."""
        self._disks[name] = disk = LoopDisk.make(self._directory / f"{name}.0", _DISK_MIB)
        disk.mount()
        path = self._directory / name
        path.symlink_to(disk.root)
        return path

    def copy_all(self) -> dict[str, LoopDisk]:
        """Copy what each disk holds now, while nobody writes: what was not synced is not in the copy."""
        self._cuts += 1
        return {name: disk.copy(self._directory / f"{name}.{self._cuts}") for name, disk in self._disks.items()}

    def replace_all(self, copies: dict[str, LoopDisk]) -> None:
        """Replace each disk by its copy.  No file of the disks is open."""
        for name, copy in copies.items():
            self._disks[name].remove()
            copy.mount()
            path = self._directory / name
            path.unlink()
            path.symlink_to(copy.root)
        self._disks = dict(copies)
