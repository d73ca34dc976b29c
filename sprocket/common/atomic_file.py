"""Small files that are replaced whole: a reader sees the old content or the new, never a mixture."""

import os
from pathlib import Path
from typing import Final

from sprocket.common.failpoints import failpoint

_AFTER_TEMPORARY: Final = failpoint("atomic_file.after_temporary", takes_error=True)
_AFTER_BACKUP: Final = failpoint("atomic_file.after_backup", takes_error=True)
_AFTER_RENAME: Final = failpoint("atomic_file.after_rename", takes_error=True)
_BEFORE_SYNC: Final = failpoint("atomic_file.before_sync", takes_error=True)


def write_whole(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace `path` durably: temporary file, fsync, rename, fsync of the directory.

    The previous content is kept as ``<name>.bak``, as RocketMQ keeps it.  `mode` says who may read and write both,
    from the first byte on (0o600: nobody else); without it the process's umask does.  Raises OSError; the old file is
    then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    _write_synced(temporary, content, mode)
    _AFTER_TEMPORARY()
    if _keep_previous(path, mode):
        _AFTER_BACKUP()
    temporary.replace(path)
    _AFTER_RENAME()
    sync_directory(path.parent)


def _keep_previous(path: Path, mode: int | None) -> bool:
    """Give the content of `path` the name ``<name>.bak`` as well; whether there is one.

    By a second link where the file system has them: the content is on the disk already.
    """
    backup_temporary = path.with_name(path.name + ".bak.tmp")
    try:
        if mode is not None:
            path.chmod(mode)
        backup_temporary.unlink(missing_ok=True)
        os.link(path, backup_temporary)
    except FileNotFoundError:
        return False
    except OSError:
        _write_synced(backup_temporary, path.read_bytes(), mode)
    backup_temporary.replace(path.with_name(path.name + ".bak"))
    # A crash before the last rename leaves two names of one file, between which a rename does nothing.
    backup_temporary.unlink(missing_ok=True)
    return True


def read_whole(path: Path) -> bytes | None:
    """Content of `path`, else of its ``.bak``; None if neither exists or both are empty."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if content:
            return content
    return None


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable: a rename or a creation survives a power cut after this."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(path: Path, content: bytes, mode: int | None) -> None:
    with path.open("wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        _BEFORE_SYNC()
        os.fsync(file.fileno())
