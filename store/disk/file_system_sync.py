"""One sync for all files of a file system.

Syncing a thousand files one by one costs a thousand commits of the file system's journal; syncfs(2) costs one.  From
Linux 5.8 on, syncfs reports an error if any write failed since its descriptor was opened.
"""

import ctypes
import os
import platform
import re
from typing import Final

_REPORTS_ERRORS_FROM: Final = (5, 8)


def can_sync_file_systems() -> bool:
    """Return whether the system has syncfs, and syncfs reports errors."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    is_new = release is not None and (int(release[1]), int(release[2])) >= _REPORTS_ERRORS_FROM
    return platform.system() == "Linux" and is_new and hasattr(ctypes.CDLL(None), "syncfs")


def sync_file_system(descriptor: int) -> None:
    """Sync all files and names of the file system of `descriptor`.

    Other threads run meanwhile.  Raises OSError.
    """
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
