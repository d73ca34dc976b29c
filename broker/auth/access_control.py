"""Access control at a broker's port: the accounts of ACL 1.0, the users and policies of ACL 2.0, or both.

Source: RocketMQ 5.3.2, `BrokerController.initialAcl`: aclEnable; 5.3.3, `BrokerController.initialRequestPipeline`:
authenticationEnabled, authorizationEnabled.  Beyond RocketMQ, a request with an unknown code is checked, too.
"""

from pathlib import Path
from typing import Final

from acl.access_request import AccessRequest
from acl.auth.model import Action
from acl.auth.requests import check_rules
from acl.gate import Gate, Policy
from acl.peer_identity import SELF_CHECKED
from acl.plain.files import PlainFiles
from acl.weak_settings import Exposure, warn_of
from broker.client.clients import ClientChannel
from broker.config.broker_config import BrokerConfig
from broker.namespace.connections import NamespaceConnections
from broker.periodic import Periodic
from broker.service import Service
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError
from sprocket.common.figures import Declared, Figure
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.tls.settings import TlsSettings
from store.config.store_config import StoreConfig

# Half of `AclFileWatchService`'s period, because a change takes effect at the second check that sees it.
_WATCH_S: Final = 2.5


class AccessControl(Service):
    """Access control of a broker's port; off without aclEnable and authenticationEnabled.  Lives in the loop's thread.

    With both keys a request must pass both checks.  The constructor and `check` raise ConfigError: a broker with access
    control does not start without its accounts.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: StoreConfig,
        tls: TlsSettings,
        users: Policy | None,
        connections: NamespaceConnections,
    ) -> None:
        self._connections = connections
        self._config, self._store, self._tls = config, store, tls
        self._files = _files(config)
        self._users = users  # the policy of ACL 2.0
        self._is_guarded = self._files is not None or config.asks_for_users
        # With these the broker signs its requests to other brokers and name servers.
        self.credentials: Credentials | None = server_account(config)
        self.gate = Gate(
            self._policies(),
            config,
            clock,
            cluster=config.broker_cluster_name,
            is_white=self._is_white,
            refused_code=ResponseCode.NO_PERMISSION if config.asks_for_users else ResponseCode.SYSTEM_ERROR,
            self_checked=SELF_CHECKED,
            on_signed=connections.signed,
        )

    def guard(self, table: RouteTable) -> RouteTable:
        """Check all requests to `table`, and return it.  Raises InvariantError if a route has no rule."""
        check_rules(table.routes)
        return self.gate.stand_before(table) if self._is_guarded else table

    def check(self) -> None:
        """Read the accounts.  Raises ConfigError."""
        if self._files is not None:
            self._files.load()
        self.accounts_changed()

    def start(self) -> None:
        """Warn about insecure settings."""
        named = [(user.username, user.password) for user in self._config.first_users()]
        accounts = [] if self._files is None else self._files.policy.secrets
        warn_of(
            Exposure(
                self._config.bind_address, self._config, self._tls, self._config.acl_enable,
                self.is_replication_guarded,
                self._is_guarded and self._store.ha_allow_plain_peers and bool(self._config.name_servers),
                [*named, *accounts],
            )
        )  # fmt: skip

    def channel_closed(self, channel: RemotingChannel) -> None:
        """Count a closed connection no longer in the namespace of the account that has signed on it."""
        self._connections.channel_closed(channel)

    def periodic(self) -> list[Periodic]:
        """Return the periodic work: watch the files, and log how many audit lines were omitted."""
        if not self._is_guarded:
            return []
        work = [Periodic("audit_log", 1.0, self.gate.audit.flush)]
        if self._files is not None:
            work.append(Periodic("acl_files", _WATCH_S, self._reload))
        return work

    @property
    def plain_files(self) -> PlainFiles | None:
        """Files with the accounts of aclEnable."""
        return self._files

    @property
    def is_guarded(self) -> bool:
        """Whether every request must be signed."""
        return self._is_guarded

    @property
    def is_replication_guarded(self) -> bool:
        """Whether a slave must prove its identity before it gets the log."""
        store = self._store
        return (bool(store.ha_secret_file) or self._is_guarded) and not store.ha_allow_plain_peers

    def accounts_changed(self) -> None:
        """Apply the current accounts of the files."""
        self.gate.replace_policies(self._policies())

    def _policies(self) -> tuple[Policy, ...]:
        plain: tuple[Policy, ...] = () if self._files is None else (self._files.policy,)
        return plain if self._users is None else (*plain, self._users)

    def may_publish(self, channel: ClientChannel, topic: str) -> bool:
        """Whether the user of a connection may publish to `topic`, and thus be asked about its transactions."""
        if not self._is_guarded:
            return True
        return isinstance(channel, RemotingChannel) and self.gate.allows(channel, topic, Action.PUB)

    def figures(self) -> list[Declared]:
        """Return the gate's figures; they stay 0 without access control."""
        return [
            Figure("accessRefused", "requests that access control refused", lambda: self.gate.refused),
            Figure(
                "accessLockedOut",
                "requests refused unchecked, because their address sent too many wrong signatures",
                lambda: self.gate.locked_out,
            ),
        ]

    def _reload(self) -> None:
        if self._files is not None:
            self._files.watch()
        self.accounts_changed()

    def _is_white(self, asked: AccessRequest) -> bool:
        return self._files is not None and self._files.policy.is_white(asked)


def _files(config: BrokerConfig) -> PlainFiles | None:
    if not config.acl_enable:
        return None
    if not config.rocketmq_home:
        raise ConfigError("aclEnable = true: set rocketmqHome, whose conf/plain_acl.yml has the accounts")
    return PlainFiles(Path(config.rocketmq_home))


def server_account(config: BrokerConfig) -> Credentials | None:
    """Return the account with which a broker signs: the configured one, or with aclEnable that of ``tools.yml``.

    Raises ConfigError.
    """
    configured, files = config.inner_credentials(), _files(config)
    return files.tool_credentials() if configured is None and files is not None else configured
