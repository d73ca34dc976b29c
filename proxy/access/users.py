"""Users and policies of a proxy: the file of a broker, read again when it changes, and never written.

A file of its own: the gate knows no files.
"""

import logging
from pathlib import Path

from acl.auth.files import AuthFiles
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.tokens.tokens import tokens_of
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, StoreError
from sprocket.remoting.tls.material import file_state

logger = logging.getLogger(__name__)


class SharedUsers:
    """Users in ``auth.json`` in `folder`, and those that the configuration names.

    The constructor raises ConfigError if there is no such file.
    """

    def __init__(self, settings: AuthSettings, folder: Path, clock: Clock) -> None:
        key_file = Path(settings.auth_secret_key_file) if settings.auth_secret_key_file.strip() else None
        self._files = AuthFiles(folder, key_file, in_clear=settings.auth_secrets_in_clear)
        self._settings = settings
        self._state: tuple[int, int, int] | None = None
        self.tables = AuthTables()
        self.tokens = tokens_of(settings, clock, lambda: self.tables.revocations)

    def load(self) -> None:
        """Read the users.  Raises ConfigError without a file and without users in the configuration, StoreError."""
        if not self._files.path.exists() and not self._settings.first_users():
            raise ConfigError(
                f"authConfigPath: there is no {self._files.path}; give the folder of a broker's auth.json"
            )
        self._state = file_state(self._files.path)
        self.tables.take(self._files.load())
        for user in self._settings.first_users():
            if self.tables.user(user.username) is None:
                self.tables.create_user(user)

    def look(self) -> None:
        """Read the users again if the file has changed; keep the old ones if it cannot be read.  Look at tokens."""
        if self.tokens is not None:
            self.tokens.look()
        if file_state(self._files.path) == self._state:
            return
        try:
            self.load()
        except (StoreError, ConfigError) as error:
            logger.warning("event=users_not_read reason=%r", str(error))
