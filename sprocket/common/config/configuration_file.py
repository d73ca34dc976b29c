"""The file that a server was started with (-c), into which update requests are written.

The reference replaces the file by all keys and values, without comments; here only the keys of the request change.  If
the file cannot be written, the reference silently changes the running server; here nothing changes, so that file and
server agree.
Source: RocketMQ 5.3.3, `Configuration.update`, `persist`, `MixAll.string2File`.
"""

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sprocket.common.config import properties
from sprocket.common.config.configuration import Configuration, settings_of, update_entries, value_text
from sprocket.common.errors import ConfigError, SprocketError
from sprocket.common.files.atomic_file import replace_file

logger = logging.getLogger(__name__)

_NO_FILE: Final = "in force until the server ends: it was started without a configuration file (-c) to keep it in"
_ANY_WRITE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class ConfigurationNotKept(SprocketError):
    """The file cannot be read or written; neither the file nor the running server has changed."""


class ConfigurationFile:
    """The file at `path`; the command line overrides the keys in `overridden` at a start."""

    def __init__(self, path: Path, overridden: frozenset[str] = frozenset()) -> None:
        self.path = path
        self._overridden = overridden

    @classmethod
    def of(cls, configuration: Configuration) -> "ConfigurationFile | None":
        """Return the file that `configuration` was read from; None if it was read from none."""
        # Absolute: the working directory may change.
        path = configuration.path
        return None if path is None else cls(path.absolute(), configuration.overridden)

    def keep(self, values: Mapping[str, str]) -> None:
        """Write `values` into the file durably; the earlier content is kept as ``.bak``.

        Raises ConfigurationNotKept.
        """
        try:
            # A link keeps pointing to the file.
            path = self.path.resolve(strict=True)
            status = path.stat()
            content = path.read_bytes()
            after = properties.edited(content, values, str(self.path))
            if after != content:
                if not status.st_mode & _ANY_WRITE or not os.access(path, os.W_OK):
                    raise PermissionError(errno.EACCES, "it is read-only")
                _replace(path, after, status)
        except ConfigError as error:
            raise ConfigurationNotKept(f"nothing was changed: {error}") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationNotKept(f"nothing was changed: {self.path} cannot be written: {reason}") from None

    def note(self, values: Mapping[str, str]) -> str | None:
        """Return what the caller that changed `values` must know about the next start."""
        overridden = sorted(self._overridden & values.keys())
        if not overridden:
            return None
        says = f"the command line, which wins at the next start, says {', '.join(overridden)}, too"
        return f"kept in {self.path.name}; {says}"


def _replace(path: Path, content: bytes, status: os.stat_result) -> None:
    """Replace the file; keep mode and owner as far as this process may set them.  Raises OSError."""
    try:
        replace_file(path, content, stat.S_IMODE(status.st_mode))
    except OSError as error:
        for name in (path.name + ".tmp", path.name + ".bak.tmp"):
            with contextlib.suppress(OSError):
                path.with_name(name).unlink(missing_ok=True)
        if path.read_bytes() != content:
            raise
        # The file was replaced; only the sync of its folder is uncertain.
        logger.warning("event=configuration_file_not_synced path=%s reason=%r", path, str(error))
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(OSError):
            os.chown(path, status.st_uid, status.st_gid)


def kept(file: ConfigurationFile | None, after: Configuration, update: bytes) -> str | None:
    """Write the keys that `update` names, with the values of `after`, before they take effect.  Return a note.

    Raises ConfigurationNotKept; then the keys must not take effect.
    """
    named = {entry.key for entry in update_entries(update)}
    values = {
        setting.key: value_text(getattr(held, setting.field))
        for held in after.objects
        for setting in settings_of(type(held))
        if setting.key in named
    }
    if not values:
        return None
    if file is None:
        return _NO_FILE
    file.keep(values)
    return file.note(values)
