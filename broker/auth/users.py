"""Users and policies of one broker: read at the start, changed by operators, replicated to slaves.

Passwords are sealed for slaves with a key that both ends derive from innerClientAuthenticationCredentials.  Without
these credentials, or with a master of RocketMQ, nothing is replicated; then tools make each change on every replica.
Source of the files: RocketMQ 5.3.3, `BrokerController`, where slaves do not replicate users.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from acl.auth.admin import AuthAdminProcessor
from acl.auth.document import opened_from_master, sealed_for_replica
from acl.auth.files import AuthFiles, new_seal
from acl.auth.policy import AuthPolicy
from acl.auth.requests import required
from acl.auth.secrets import derived_key
from acl.auth.start import accounts_of_v1, fill
from acl.auth.tables import AuthContent, AuthTables
from acl.tokens.tokens import LOOK_S, Tokens, tokens_of
from broker.config.broker_config import BrokerConfig
from broker.periodic import Periodic
from broker.replicated_table import ReplicatedTable
from broker.service import Service
from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed, ProtocolError, StoreError
from sprocket.common.figures import Declared, Figure
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.routes import Route

logger = logging.getLogger(__name__)

_SAVE_S: Final = 1.0
# Users that a figure names.
_MAX_NAMED: Final = 10
_PURPOSE: Final = "sprocket: users and acls from a master to its slaves"


class Users(Service):
    """Users and policies.  Lives in the event loop's thread.  `failed` is called after a write with unknown outcome.

    The constructor and `check` raise ConfigError for settings with which the broker cannot start.
    """

    def __init__(
        self,
        config: BrokerConfig,
        folder: Path,
        clock: Clock,
        failed: Callable[[DiskFailed], None],
        *,
        is_slave: Callable[[], bool],
    ) -> None:
        self._config = config
        self._failed = failed
        self._clock = clock
        key_file = Path(config.auth_secret_key_file) if config.auth_secret_key_file.strip() else None
        self._files = AuthFiles(folder, key_file, in_clear=config.auth_secrets_in_clear)
        self.tables = AuthTables(self._save, is_copy=is_slave)
        # None if no request needs a user.
        self.policy: AuthPolicy | None = None
        self.tokens: Tokens | None = None
        if config.asks_for_users:
            self.tokens = tokens_of(config, clock, lambda: self.tables.revocations)
            self.policy = AuthPolicy(config, self.tables, required, self.tokens)
        # With these the broker signs its own requests.
        self.credentials: Credentials | None = config.inner_credentials()
        self._unsaved: AuthContent | None = None

    @property
    def is_kept(self) -> bool:
        """Whether this broker stores users, also while no request needs one."""
        return self.policy is not None or bool(self._config.authentication_metadata_provider)

    def routes(self) -> list[Route]:
        """Return the routes of operators' requests."""
        return AuthAdminProcessor(self.tables, self.policy, self._clock, is_served=self.is_kept).routes()

    def check(self) -> None:
        """Raise ConfigError if the accounts of ACL 1.0, which are to become users, cannot be read."""
        if self.is_kept:
            accounts_of_v1(self._config, self._config.rocketmq_home)

    def load(self) -> None:
        """Load the file, and add the users of the configuration.  Raises StoreError or ConfigError."""
        if not self.is_kept:
            return
        fill(self.tables, self._files, self._config, self._config.rocketmq_home)

    # On the disk

    def _save(self, content: AuthContent) -> None:
        try:
            self._files.save(content)
        except DiskFailed as error:
            self._failed(error)
            raise

    def periodic(self) -> list[Periodic]:
        """Return the periodic save of replicated users, and the look at tokens."""
        saves = [Periodic("auth_tables", _SAVE_S, self._save_received)] if self.is_kept else []
        return saves if self.tokens is None else [*saves, Periodic("tokens", LOOK_S, self.tokens.look)]

    def figures(self) -> list[Declared]:
        """Return what operators should know of tokens: empty texts if there is nothing."""

        def users() -> str:
            found = [] if self.tokens is None else self.tokens.not_renewed()
            found.sort(key=lambda one: one[1])
            shown = [f"{token.user} ({len(token.bearers)} connections, {s:.0f} s)" for token, s in found[:_MAX_NAMED]]
            return ", ".join(shown)

        def troubles() -> str:
            return "" if self.tokens is None else "; ".join(self.tokens.key_troubles())

        ending = "users of open connections whose token has less than a tenth of its life left, and was not renewed"
        sources = "sources of the keys of tokens that cannot be read or fetched, or have lost keys, and why"
        return [Figure("tokensNotRenewed", ending, users), Figure("tokenKeyTroubles", sources, troubles)]

    async def _save_received(self) -> None:
        content, self._unsaved = self._unsaved, None
        if content is not None:
            try:
                await asyncio.to_thread(self._save, content)
            except BaseException:
                self._unsaved = self._unsaved or content
                raise

    def save(self) -> None:
        """Write the file if it is unsaved.  Raises StoreError."""
        if self._unsaved is not None:
            self._save(self._unsaved)
            self._unsaved = None

    # From a master to its slaves

    def replicated(self) -> list[ReplicatedTable]:
        """Return the table to replicate; none without a shared secret."""
        if not self.is_kept or self.credentials is None:
            return []
        seal = new_seal(derived_key(self.credentials.secret_key, _PURPOSE))
        tables = self.tables

        def prepare(sealed: bytes) -> Callable[[], None]:
            try:
                return partial(self._take_over, opened_from_master(sealed, seal))
            except (ProtocolError, StoreError) as error:
                # The replication of the log must go on.
                return partial(self._cannot_follow, str(error))

        def encode() -> bytes:
            return sealed_for_replica(tables.content, seal)

        return [ReplicatedTable("auth", None, lambda: tables.revision.number, encode, prepare, is_awaited=True)]

    def _take_over(self, content: AuthContent) -> None:
        if content != self.tables.content:
            self.tables.take(content)
            self._unsaved = content
            logger.info("event=auth_followed users=%d acls=%d", len(content.users), len(content.acls))

    def _cannot_follow(self, reason: str) -> None:
        note = "do both have the same innerClientAuthenticationCredentials?"
        logger.error("event=auth_not_followed reason=%r note=%r", reason, note)
