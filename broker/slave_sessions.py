"""A slave's session with a master that is Sprocket too, or the plain protocol with one that is not."""

import logging
import ssl
from typing import Final

from broker.access_control import AccessControl
from broker.core import BrokerCore
from broker.following import Following, slave_rules
from broker.replica_identity import credentials
from broker.replicated_tables import ReplicatedTables
from broker.service import Service
from broker.slave_synchronize import SlaveSynchronize
from broker.table_stream import TableReceiver
from ha.greeting import Credentials
from ha.hello import VERSION
from ha.slave_link import SlaveLink
from ha.slave_session import SlaveSession
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.ha import NegotiateHaSessionRequestHeader, NegotiateHaSessionResponseHeader
from remoting.pending import RemotingTimeout
from sprocket.common.errors import ClientError, ProtocolError, StoreError

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0


class SlaveSessions(Service):
    """Lives in the event loop's thread.  `polling` stands back while a session brings the tables."""

    def __init__(
        self,
        core: BrokerCore,
        following: Following,
        tables: ReplicatedTables,
        polling: SlaveSynchronize,
        access: AccessControl | None = None,
    ) -> None:
        self._core = core
        self._access = access
        self._following = following
        self._receiver = TableReceiver(core, tables, self._begin_anew)
        self._credentials: Credentials | None = None
        self._awaits_flush = False
        # What the master said when it was asked last.
        self._speaks: bool | None = None
        self._said = ""
        # Whether the master's port for slaves takes TLS, as it said when it was asked last.
        self._master_takes_tls = False
        polling.is_delivered = lambda: self.is_delivering
        following.follower.new_link = self._new_link
        following.follower.on_received = self._received
        following.follower.new_context = self._context

    def load(self) -> None:
        """Read the secret.  Raises ConfigError for haSecretFile."""
        self._credentials = credentials(self._core, self._access)

    @property
    def is_delivering(self) -> bool:
        """Whether the master's tables come in a session, now or when the next one begins."""
        return self._speaks is True

    def _begin_anew(self, reason: str) -> None:
        connection = self._following.follower.connection
        if connection is not None:
            connection.close(reason)

    # Which protocol

    async def _new_link(self, address: str) -> SlaveLink | None:
        own, follower = self._credentials, self._following.follower
        assert own is not None
        rules = slave_rules(self._core.config.store)
        speaks = self._speaks = await self._master_speaks_sessions()
        if speaks is not None and not self._admits_transport(address):
            return None
        if speaks:
            return SlaveSession(rules, self._following.log, own, self._receiver.apply, follower.now())
        if speaks is None:
            return None
        if not own.admits_plain:
            self._say(f"the master at {address} proves nothing, which is asked for here; haAllowPlainPeers admits it")
            return None
        self._say(f"the master at {address} speaks the plain protocol")
        return SlaveLink(rules, self._following.log, follower.now())

    def _admits_transport(self, address: str) -> bool:
        """Whether the log may be asked for as the master offers it: TLS where this broker wants it."""
        if self._following.tls is None or self._master_takes_tls or self._core.config.store.ha_allow_cleartext:
            return True
        self._say(f"the master at {address} offers the log in clear, and tls.enable is set; haAllowCleartext takes it")
        return False

    def _context(self) -> ssl.SSLContext | None:
        tls = self._following.tls
        return tls.context() if tls is not None and self._master_takes_tls else None

    async def _master_speaks_sessions(self) -> bool | None:
        """Ask it; None if it does not say."""
        master, broker = self._following.master_address, self._core.config.broker
        self._master_takes_tls = False
        if not self._core.config.store.ha_session_enable or not master:
            # Only the address of its port for slaves may be known (haMasterAddress).
            return False
        header = NegotiateHaSessionRequestHeader(
            cluster_name=broker.broker_cluster_name, broker_name=broker.broker_name, broker_id=broker.broker_id,
            version=VERSION,
        )  # fmt: skip
        try:
            answer = await self._core.client.invoke(
                master, RequestCode.NEGOTIATE_HA_SESSION, header, timeout_s=_TIMEOUT_S
            )
        except (ClientError, ProtocolError) as error:
            self._say(f"the master at {master} does not say what it speaks: {error}")
            silent = self._core.client.open_channel(master) if isinstance(error, RemotingTimeout) else None
            if silent is not None:
                # Something on the way may have forgotten the connection, and the next try would take it again.
                silent.abort("no answer")
            return None
        if answer.code == ResponseCode.SUCCESS:
            self._master_takes_tls = answer.header(NegotiateHaSessionResponseHeader).takes_tls
            self._say(f"the master at {master} speaks sessions")
            return True
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return False
        self._say(f"the master at {master} refuses: {answer.code} {answer.remark}")
        return None

    def _say(self, what: str) -> None:
        """Once for each change."""
        if what != self._said:
            self._said = what
            logger.info("event=ha_protocol detail=%r", what)

    # What is flushed

    def _received(self, link: SlaveLink) -> None:
        log = self._following.log
        if self._awaits_flush or not isinstance(link, SlaveSession) or log.flushed_offset >= log.end_offset:
            return
        self._awaits_flush = True
        store = self._core.store
        # A master that counts what is flushed waits for it; else it is told when it happens.
        when_flushed = store.when_flushed if link.counts_flushed else store.confirmation.when_flushed
        when_flushed(log.end_offset, self._flushed)

    def _flushed(self, error: StoreError | None) -> None:
        self._awaits_flush = False
        connection = self._following.follower.connection
        if error is None and connection is not None:
            connection.acknowledge()
            self._received(connection.link)
