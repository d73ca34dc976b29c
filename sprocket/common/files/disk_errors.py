"""What an error of the operating system means to the owner of a file."""

import errno
from pathlib import Path
from typing import Final

from sprocket.common.errors import DiskFailed, DiskFull, NoDescriptor, StoreError
from sprocket.common.spare_descriptors import NO_DESCRIPTOR

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def as_store_error(error: OSError, action: str, path: Path) -> StoreError:
    """Return the store's error for an `error` that occurred in `action` on `path`."""
    detail = f"{action} {path}: {error.strerror or error}"
    if error.errno in NO_DESCRIPTOR:
        return NoDescriptor(f"{detail}; raise the limit of open files (ulimit -n)")
    return DiskFull(detail) if error.errno in _FULL else DiskFailed(detail)
