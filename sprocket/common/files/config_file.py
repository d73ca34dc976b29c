"""One small file that is replaced as a whole: its path, its backup, and what a failed write means.

Source: RocketMQ 5.3.3, `ConfigManager.load`, `MixAll.string2File`.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sprocket.common.errors import DiskFailed, ProtocolError, StoreError
from sprocket.common.files.atomic_file import read_file_or_backup, replace_file
from sprocket.common.files.disk_errors import as_store_error

logger = logging.getLogger(__name__)

T = TypeVar("T")


def _ignore(_: DiskFailed) -> None:
    pass


class ConfigFile:
    """File that is replaced durably; the previous content is kept as ``.bak``.

    `failed` is called after a write whose outcome is unknown.  `mode` are the permissions of file and backup (0o600:
    only the owner reads them); without it the umask of the process holds.
    """

    def __init__(self, path: Path, failed: Callable[[DiskFailed], None] = _ignore, mode: int | None = None) -> None:
        self.path = path
        self._failed = failed
        self._mode = mode

    @property
    def backup(self) -> Path:
        """Path of the previous content."""
        return self.path.with_name(self.path.name + ".bak")

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """Return the decoded content, or that of ``.bak`` if the file is missing, empty or broken; None if both miss.

        `decode` raises ProtocolError for a broken content.  Raises `StoreError` if files exist but none can be read.
        """
        reason = ""
        for path in (self.path, self.backup):
            try:
                content = read_file_or_backup(path)
            except OSError as error:
                raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
            if content is None:
                continue
            try:
                return decode(content)
            except ProtocolError as error:
                reason = f"{path}: {error.detail}"
                logger.warning("event=config_file_broken path=%s detail=%r", path, error.detail)
        if reason:
            advice = f"repair the file or restore it; without it and {self.backup.name} the table starts empty"
            raise StoreError(f"{reason}; {advice}")
        return None

    def is_newer_than(self, other: "ConfigFile") -> bool:
        """Whether this file was written after the other one, or only this one exists."""
        mine, theirs = self._written_ns(), other._written_ns()
        return mine is not None and (theirs is None or mine > theirs)

    def _written_ns(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None

    def write(self, content: bytes) -> None:
        """Replace the file durably.  May run in any thread, but only in one at a time.

        Raises `DiskFull` or `DiskFailed`; the file then has its old content.
        """
        try:
            replace_file(self.path, content, self._mode)
        except OSError as error:
            failure = as_store_error(error, "write", self.path)
            if isinstance(failure, DiskFailed):
                self._failed(failure)
            raise failure from error
