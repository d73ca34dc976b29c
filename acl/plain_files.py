"""The files of ACL 1.0, found, read, and read again when they change.  An edge file.

They are ``conf/acl/**/*.yml``, ``*.yaml`` and ``conf/plain_acl.yml`` below rocketmqHome; ``conf/tools.yml`` has the
account with which tools, and here brokers, sign what they ask of others.
Source: RocketMQ 5.3.2, `PlainPermissionManager.getAllAclFiles`, `AclFileWatchService`, `AclUtils.getAclRPCHook`.
"""

import logging
from pathlib import Path
from typing import Final

from acl.plain_accounts import parse, parse_credentials
from acl.plain_policy import PlainPolicy
from remoting.credentials import Credentials
from sprocket.common.errors import ConfigError

logger = logging.getLogger(__name__)

_TOOLS: Final = "tools.yml"
# (path, time of the last change ns, bytes) of every file.
_State = tuple[tuple[Path, int, int], ...]


class PlainFiles:
    """The files below ``home/conf``.  What a file said last holds until all files are sound again."""

    def __init__(self, home: Path) -> None:
        self._conf = home / "conf"
        self._seen: _State | None = None
        self.policy = PlainPolicy({})

    def load(self) -> None:
        """Read all files.  Raises ConfigError that names the file and what is wrong."""
        state = self._state()
        self._seen = state
        self.policy = PlainPolicy({str(path): parse(str(path), _read(path)) for path, _, _ in state})
        if not self.policy.account_count:
            logger.warning("event=no_accounts folder=%s note=%r", self._conf, "all are refused but white addresses")
        logger.info("event=accounts_loaded files=%d accounts=%d", len(state), self.policy.account_count)

    def reload(self) -> None:
        """Read them again if one has changed; what is broken is logged once, and changes nothing."""
        if self._state() == self._seen:
            return
        try:
            self.load()
        except ConfigError as error:
            logger.error("event=accounts_kept reason=%r", str(error))

    def tool_credentials(self) -> Credentials | None:
        """What ``tools.yml`` says; None if there is none.  Raises ConfigError."""
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
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
