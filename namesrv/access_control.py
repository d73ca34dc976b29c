"""Access control of a name server's port: users and policies of ACL 2.0.

Sprocket adds this: RocketMQ's name server admits everybody.  Brokers sign their reports with
innerClientAuthenticationCredentials.  Clients and tools sign as they sign their other requests.

A file of its own: it joins the users' files, tables, policy and gate, so that the server's file knows none of them.
"""

from pathlib import Path

from acl.auth.admin import AuthAdminProcessor
from acl.auth.files import AuthFiles
from acl.auth.policy import AuthPolicy
from acl.auth.requests import check_rules, required
from acl.auth.start import fill
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.weak_settings import Exposure, warn_of
from namesrv.config import NamesrvConfig
from sprocket.common.clock import Clock
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.routes import Route, RouteTable
from sprocket.remoting.tls.settings import TlsSettings


class AccessControl:
    """Gate of one name server, open without authenticationEnabled.  It belongs to the event loop's thread.

    The constructor raises ConfigError.
    """

    def __init__(self, config: NamesrvConfig, clock: Clock, tls: TlsSettings) -> None:
        self._config, self._tls = config, tls
        folder = Path(config.auth_config_path) if config.auth_config_path else config.kv_config_path.parent
        key_file = Path(config.auth_secret_key_file) if config.auth_secret_key_file.strip() else None
        self._files = AuthFiles(folder, key_file, in_clear=config.auth_secrets_in_clear)
        self.tables = AuthTables(self._files.save)
        # None if no user is required.
        self.policy = AuthPolicy(config, self.tables, required) if config.asks_for_users else None
        # Signs the notices to brokers about their group.
        self.credentials: Credentials | None = config.inner_credentials()
        self.gate = Gate(() if self.policy is None else (self.policy,), config, clock)

    def routes(self) -> list[Route]:
        """Return the routes that manage its users: ``mqadmin createUser -b`` with the name server's address."""
        return [] if self.policy is None else AuthAdminProcessor(self.tables, self.policy, is_served=True).routes()

    def guard(self, table: RouteTable) -> RouteTable:
        """Put the gate before `table` and return it.  Raises InvariantError if a route has no rule."""
        check_rules(table.routes)
        return table if self.policy is None else self.gate.stand_before(table)

    def load(self) -> None:
        """Read the users, and add those that the configuration names.  Raises StoreError or ConfigError."""
        if self.policy is not None:
            fill(self.tables, self._files, self._config, "")

    def warn(self) -> None:
        """Log what the settings leave open."""
        named = [(user.username, user.password) for user in self._config.first_users()]
        warn_of(Exposure(self._config.bind_address, self._config, self._tls, secrets=named))
