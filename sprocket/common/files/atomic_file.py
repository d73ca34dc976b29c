"""Small files that are replaced as a whole: a reader sees the old content or the new, never a mixture."""

import os
from pathlib import Path
from typing import Final

from sprocket.common.failpoints import failpoint
from sprocket.common.files.regular_file import open_regular, read_regular
from sprocket.common.spare_descriptors import spare_descriptors

_AFTER_TEMPORARY: Final = failpoint("atomic_file.after_temporary", takes_error=True)
_AFTER_BACKUP: Final = failpoint("atomic_file.after_backup", takes_error=True)
_AFTER_RENAME: Final = failpoint("atomic_file.after_rename", takes_error=True)
_BEFORE_SYNC: Final = failpoint("atomic_file.before_sync", takes_error=True)


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace `path` durably: temporary file, fsync, rename, fsync of the directory.

    The previous content is kept as ``<name>.bak``, as RocketMQ keeps it.  `mode` holds for both files from their first
    byte on (0o600: only the owner reads them); without it the umask of the process holds.

    Raises OSError.  Readers then see the previous content, as before the call.  There is one exception: the sync of the
    directory fails after the rename, and so does the way back.  The error then says that the new content is in place.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write_synced(temporary, content, mode)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_synced(temporary, content, mode)
    _AFTER_TEMPORARY()
    has_previous = _keep_previous(path, mode)
    if has_previous:
        _AFTER_BACKUP()
    temporary.replace(path)
    try:
        _AFTER_RENAME()
        sync_directory(path.parent)
    except OSError as error:
        _restore_previous(path, error, has_previous=has_previous)
        raise


def _keep_previous(path: Path, mode: int | None) -> bool:
    """Give the content of `path` the name ``<name>.bak`` too.  Return whether there was any content.

    Use a second link where the file system has links: the content is on the disk already.
    """
    backup_temporary = path.with_name(path.name + ".bak.tmp")
    try:
        if mode is not None:
            path.chmod(mode)
        _link(path, backup_temporary)
    except FileNotFoundError:
        return False
    except OSError:
        _write_synced(backup_temporary, read_regular(path), mode)
    backup_temporary.replace(path.with_name(path.name + ".bak"))
    # A crash before the last rename leaves two names of one file.  A rename between those does nothing.
    backup_temporary.unlink(missing_ok=True)
    return True


def _restore_previous(path: Path, cause: OSError, *, has_previous: bool) -> None:
    """Undo a rename whose sync failed, because callers go on with the previous content.

    Which of the two a power cut leaves is unknown.  Raises OSError, from `cause`, if the new content stays in place.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        if has_previous:
            _link(path.with_name(path.name + ".bak"), temporary)
            temporary.replace(path)
        else:
            path.unlink()
    except OSError as error:
        text = f"{cause.strerror or cause}; the new content is in place, but may not survive a power cut: {error}"
        raise OSError(cause.errno, text, str(path)) from cause


def _link(path: Path, name: Path) -> None:
    """Give the file at `path` the second name `name`, in place of an older file of that name."""
    try:
        os.link(path, name)
    except FileExistsError:
        name.unlink()
        os.link(path, name)


def read_file_or_backup(path: Path) -> bytes | None:
    """Return the content of `path`, or of its ``.bak`` if `path` is missing or empty.  None if both are."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            content = read_regular(candidate)
        except FileNotFoundError:
            continue
        if content:
            return content
    return None


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: a rename or a creation before this survives a power cut."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows, which runs clients alone, opens no directory
    descriptor = spare_descriptors.use(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(path: Path, content: bytes, mode: int | None) -> None:
    # Without a buffer: the content is written with one call.
    with os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb", buffering=0) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        _BEFORE_SYNC()
        os.fsync(file.fileno())
