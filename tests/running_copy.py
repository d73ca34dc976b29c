"""A copy of the folder of a server that still runs: what a crash at this moment would leave."""

import shutil
from pathlib import Path


def copy_of_running(folder: Path, copy: Path) -> None:
    """Copy `folder` to `copy`, which must not exist, without temporary files.

    A thread of the server may be about to rename a temporary file: it would be gone when it is copied.
    """
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.tmp"))
