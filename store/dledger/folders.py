"""Folders of DLedger's entries in a store's root.

A file of its own, because a broker's start needs it and not the reader of the entries.
"""

from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from store.disk.disk import Disk

DLEDGER_PREFIX: Final = "dledger-"


def dledger_folders(disk: Disk, root: Path) -> list[Path]:
    """Return the folders of a store's root that hold entries of DLedger.  Raises `DiskFailed`."""
    folders = [root / name for name, size in disk.entries(root) if name.startswith(DLEDGER_PREFIX) and size is None]
    return [folder for folder in folders if any(size for _, size in disk.entries(folder / "data"))]


def refuse_entry_files(disk: Disk, root: Path) -> None:
    """Raise StoreError if a store's root holds entries of DLedger, which would not be read."""
    for folder in dledger_folders(disk, root):
        raise StoreError(
            f"{folder}: these are files of RocketMQ's DLedger mode, which a broker does not read.  Convert them once, "
            f"with the broker stopped: sprocket store import {root} --to NEW_DIRECTORY; then set storePathRootDir to "
            "the new directory"
        )
