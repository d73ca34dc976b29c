"""Access control of a port that has users of its own: a name server's, and a controller's.

Sprocket adds this: RocketMQ's name servers and controllers admit everybody.  Brokers sign their requests with
innerClientAuthenticationCredentials.  Clients and tools sign as they sign their other requests.
"""

import asyncio
from pathlib import Path

from acl.auth.admin import AuthAdminProcessor
from acl.auth.files import AuthFiles
from acl.auth.policy import AuthPolicy
from acl.auth.requests import check_rules, required
from acl.auth.settings import AuthSettings
from acl.auth.start import fill
from acl.auth.tables import AuthTables
from acl.gate import Gate
from acl.gate_settings import GateSettings
from acl.peer_identity import SELF_CHECKED
from acl.tokens.tokens import LOOK_S, Tokens, tokens_of
from acl.weak_settings import Exposure, warn_of
from sprocket.common.clock import Clock
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.routes import Route, RouteTable
from sprocket.remoting.tls.settings import TlsSettings


class AccessControl:
    """Gate of one port, open without authenticationEnabled.  It belongs to the event loop's thread.

    `folder` has the file of users and policies; `bind_address` is that of the port.  The constructor raises
    ConfigError.
    """

    def __init__(
        self,
        auth: AuthSettings,
        gate: GateSettings,
        clock: Clock,
        tls: TlsSettings,
        *,
        folder: Path,
        bind_address: str,
    ) -> None:
        self._auth, self._tls, self._bind_address = auth, tls, bind_address
        self._clock = clock
        key_file = Path(auth.auth_secret_key_file) if auth.auth_secret_key_file.strip() else None
        self._files = AuthFiles(folder, key_file, in_clear=auth.auth_secrets_in_clear)
        self.tables = AuthTables(self._files.save)
        # None if no user is required.
        self.policy: AuthPolicy | None = None
        self._tokens: Tokens | None = None
        self._timer: asyncio.TimerHandle | None = None
        if auth.asks_for_users:
            self._tokens = tokens_of(auth, clock, lambda: self.tables.revocations)
            self.policy = AuthPolicy(auth, self.tables, required, self._tokens)
        # Signs the notices to brokers about their group, and proves a controller's identity to them.
        self.credentials: Credentials | None = auth.inner_credentials()
        self.gate = Gate(() if self.policy is None else (self.policy,), gate, clock, self_checked=SELF_CHECKED)

    def routes(self) -> list[Route]:
        """Return the routes that manage its users: ``mqadmin createUser -b`` with the server's address."""
        return (
            []
            if self.policy is None
            else AuthAdminProcessor(self.tables, self.policy, self._clock, is_served=True).routes()
        )

    def guard(self, table: RouteTable) -> RouteTable:
        """Put the gate before `table` and return it.  Raises InvariantError if a route has no rule."""
        check_rules(table.routes)
        return table if self.policy is None else self.gate.stand_before(table)

    def load(self) -> None:
        """Read the users, and add those that the configuration names.  Raises StoreError or ConfigError."""
        if self.policy is not None:
            fill(self.tables, self._files, self._auth, "")
        self._look()

    def _look(self) -> None:
        """Look at tokens, and do so again and again."""
        if self._tokens is not None:
            self._tokens.look()
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    async def stop(self) -> None:
        """End what `load` began."""
        if self._timer is not None:
            self._timer.cancel()
        if self._tokens is not None:
            await self._tokens.close()

    def warn(self) -> None:
        """Log what the settings leave open."""
        named = [(user.username, user.password) for user in self._auth.first_users()]
        warn_of(Exposure(self._bind_address, self._auth, self._tls, secrets=named))
