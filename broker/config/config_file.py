"""Files of ``config/``: JSON exactly as RocketMQ writes it, so that either broker can use a data directory.

Source: RocketMQ 5.3.3, `ConfigManager`, `RemotingSerializable.toJson(pretty)` with fastjson 1.2.83.
"""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from sprocket.common.atomic_file import read_file_or_backup, replace_file
from sprocket.common.errors import DiskFailed, DiskFull, ProtocolError, StoreError
from sprocket.remoting.codec.fastjson import loads

logger = logging.getLogger(__name__)

T = TypeVar("T")


def _ignore(_: DiskFailed) -> None:
    pass


class ConfigFile(Generic[T]):
    """File with one struct, which is replaced as a whole; the previous content is kept as ``.bak``.

    `failed` is called after a write whose outcome is unknown.
    """

    def __init__(self, path: Path, content_type: type[T], failed: Callable[[DiskFailed], None] = _ignore) -> None:
        self.path = path
        self._type = content_type
        self._failed = failed
        # Whether the table in memory has changed since its content was taken for `save`.
        self.is_unsaved = False

    def load(self) -> T | None:
        """Return the content, or that of ``.bak`` if the file is missing, empty or broken; None if both are missing.

        Raises `StoreError` if files exist but none can be read.
        """
        backup = self.path.with_name(self.path.name + ".bak")
        reason = ""
        for path in (self.path, backup):
            content = read_file_or_backup(path)
            if content is None:
                continue
            try:
                return loads(content, self._type)
            except ProtocolError as error:
                reason = f"{path}: {error.detail}"
                logger.warning("event=config_file_broken path=%s detail=%r", path, error.detail)
        if reason:
            raise StoreError(f"{reason}; repair the file, or remove it together with {backup.name}")
        return None

    def is_newer_than(self, other: "ConfigFile[T]") -> bool:
        """Whether this file was written after the other one, or only this one exists."""
        mine, theirs = self._written_ns(), other._written_ns()
        return mine is not None and (theirs is None or mine > theirs)

    def _written_ns(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None

    def take_unsaved(self) -> bool:
        """Whether the table is unsaved; clears the mark, so the caller must `save`."""
        is_unsaved, self.is_unsaved = self.is_unsaved, False
        return is_unsaved

    def save(self, content: bytes) -> None:
        """`write` the content; if that fails, the table is unsaved again."""
        try:
            self.write(content)
        except Exception:
            self.is_unsaved = True
            raise

    def write(self, content: bytes) -> None:
        """Replace the file durably by `content` (see `pretty`).  May run in any thread.

        Raises `DiskFull` or `DiskFailed`; the file then has its old content.
        """
        try:
            replace_file(self.path, content)
        except OSError as error:
            detail = f"write {self.path}: {error.strerror or error}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(detail) from error
            failure = DiskFailed(detail)
            self._failed(failure)
            raise failure from error
