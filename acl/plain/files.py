"""Files of ACL 1.0: found, read, and read again after a change.  An edge file.

They are ``conf/acl/**/*.yml``, ``*.yaml`` and ``conf/plain_acl.yml`` below rocketmqHome.  ``conf/tools.yml`` has the
account with which tools, and here brokers, sign requests to others.
Source: RocketMQ 5.3.2, `PlainPermissionManager.getAllAclFiles`, `AclFileWatchService`, `AclUtils.getAclRPCHook`.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acl.plain.accounts import WrittenFile, parse, parse_credentials, read_written
from acl.plain.changes import (
    AccountChange,
    FileVersion,
    version_of,
    with_account,
    with_white_addresses,
    without_account,
)
from acl.plain.policy import PlainPolicy
from sprocket.common.errors import ConfigError
from sprocket.common.files.atomic_file import replace_file
from sprocket.common.files.regular_file import read_regular
from sprocket.remoting.credentials import Credentials

logger = logging.getLogger(__name__)

_TOOLS: Final = "tools.yml"
# (path, time of the last change ns, bytes) of every file.
_State = tuple[tuple[Path, int, int], ...]


class PlainFiles:
    """Files below ``home/conf``.  Their last valid content stays in force until all files are valid again."""

    def __init__(self, home: Path) -> None:
        self._conf = home / "conf"
        self._seen: _State | None = None
        self._looked: _State | None = None
        self._filled: set[Path] = set()  # files that were not empty when they were read
        self.policy = PlainPolicy({})

    def load(self) -> None:
        """Read all files.  Raises ConfigError naming the file and the fault."""
        state = self._state()
        self._seen = state
        self.policy = PlainPolicy({str(path): parse(str(path), _read(path)) for path, _, _ in state})
        self._filled = {path for path, _, size in state if size}
        if not self.policy.account_count:
            logger.warning("event=no_accounts folder=%s note=%r", self._conf, "all are refused but white addresses")
        logger.info("event=accounts_loaded files=%d accounts=%d", len(state), self.policy.account_count)

    def watch(self) -> None:
        """Call `reload` once two checks find the same files: a part of a file being written may be valid."""
        state, looked = self._state(), self._looked
        self._looked = state
        if state == looked:
            self.reload()

    def reload(self) -> None:
        """Read the files again if one has changed.  A broken file is logged once and changes nothing.

        Neither does a file that is now empty; RocketMQ skips it, too.  Write ``accounts: []`` for no accounts.
        """
        state = self._state()
        if state == self._seen:
            return
        try:
            for path, _, size in state:
                if not size and path in self._filled:
                    self._seen = state
                    raise ConfigError(f"{path}: empty; write accounts: [] for no accounts")
            self.load()
        except ConfigError as error:
            logger.error("event=accounts_kept reason=%r", str(error))

    # Changes from outside

    def put_account(self, change: AccountChange, now_ms: int) -> None:
        """Change an account in its file, or add it to ``plain_acl.yml``.  Raises ConfigError."""
        path = self._path_of(change.access_key) or self.default
        self._write(path, with_account(str(path), self._content(path), change, now_ms))

    def drop_account(self, access_key: str, now_ms: int) -> bool:
        """Remove an account.  Return whether it existed.  Raises ConfigError."""
        path = self._path_of(access_key)
        content = None if path is None else without_account(str(path), self._content(path), access_key, now_ms)
        if path is None or content is None:
            return False
        self._write(path, content)
        return True

    def put_white_addresses(self, addresses: Sequence[str], path_text: str | None, now_ms: int) -> None:
        """Replace a file's global white list: that of ``plain_acl.yml``, or of another file that is read here.

        Raises ConfigError.
        """
        path = Path(path_text) if path_text else self.default
        if path != self.default and path not in [known for known, _, _ in self._state()]:
            raise ConfigError(f"{path} is not one of the files read here; leave it out for {self.default.name}")
        self._write(path, with_white_addresses(str(path), self._content(path), addresses, now_ms))

    def versions(self) -> dict[str, FileVersion]:
        """Return the dataVersion of each file by its path.  Raises ConfigError."""
        return {str(path): version_of(str(path), _read(path)) for path, _, _ in self._state()}

    def written(self) -> list[WrittenFile]:
        """Return the files' content as written, keys included.  Raises ConfigError."""
        return [read_written(str(path), _read(path)) for path, _, _ in self._state()]

    @property
    def default(self) -> Path:
        """File for new accounts."""
        return self._conf / "plain_acl.yml"

    def _path_of(self, access_key: str) -> Path | None:
        """Return the file whose account of this name is in force; None without one."""
        for path, _, _ in self._state():
            if any(account.access_key == access_key for account in read_written(str(path), _read(path)).accounts or []):
                return path
        return None

    def _content(self, path: Path) -> bytes:
        return _read(path) if path.exists() else b""

    def _write(self, path: Path, content: bytes) -> None:
        others = {str(other): _read(other) for other, _, _ in self._state() if other != path}
        for name, other in others.items():
            parse(name, other)  # another broken file would keep the change from taking effect
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        try:
            replace_file(path, content, mode)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None
        self.load()

    def tool_credentials(self) -> Credentials | None:
        """Return the account in ``tools.yml``; None without the file.  Raises ConfigError."""
        path = self._conf / _TOOLS
        if not path.is_file():
            return None
        return parse_credentials(str(path), _read(path))

    def _state(self) -> _State:
        folder = self._conf / "acl"
        found = sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml"))
        found = [path for path in [*found, self._conf / "plain_acl.yml"] if path.is_file()]
        state = []
        for path in found:
            try:
                about = path.stat()
            except FileNotFoundError:
                continue
            state.append((path, about.st_mtime_ns, about.st_size))
        return tuple(state)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
