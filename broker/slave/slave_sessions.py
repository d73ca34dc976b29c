"""A slave's choice between a session with a Sprocket master and RocketMQ's protocol with RocketMQ's.

Two rules decide what a slave takes and from which master:

- A slave that requires proof (access control or haSecretFile, without haAllowPlainPeers) greets at the master's port
  for slaves and asks nothing at the port for clients.  A request there would carry a signature, and the address may
  come from a name server where anybody can register.
- Without a session, a slave asks for tables only over an established connection to a master whose log was compared
  with its own.  In any doubt (no answer, a refusal, an error, no connection) it asks for nothing and installs nothing.
"""

import logging
import ssl
from typing import Final

from broker.auth.access_control import AccessControl
from broker.auth.replica_identity import credentials
from broker.core import BrokerCore
from broker.out.master_address import MasterAddress
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.table_stream import TableReceiver
from broker.service import Service
from broker.slave.slave_rules import fixed_ha_address, slave_rules
from ha.autoswitch.slave_link import AutoSwitchReplica, AutoSwitchSlave
from ha.epochs.epoch_file import EpochFile
from ha.follower import MasterConnection
from ha.greeting import Credentials
from ha.hello import EPOCH_VERSION, VERSION
from ha.slave_link import SlaveLink
from ha.slave_session import SlaveSession
from ha.table_queue import TableUpdate
from sprocket.common.errors import ClientError, ProtocolError, StoreError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.ha import NegotiateHaSessionRequestHeader, NegotiateHaSessionResponseHeader
from sprocket.remoting.pending import RemotingTimeout
from sprocket.remoting.tls.watch import ClientTls
from store.flush.confirmation import NO_LIMIT
from store.replica.replica_log import StoreReplicaLog

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0


class SlaveSessions(Service):
    """Links of one slave to its master, `ha.follower.Links`.  Lives in the event loop's thread.

    `log` is the copy of the master's log, `tls` that of connections to other brokers.  In controller mode `epochs` is
    the history of the log.  With `autoswitch` the protocol with a RocketMQ master is that of controller mode.
    """

    def __init__(
        self,
        core: BrokerCore,
        master: MasterAddress,
        log: StoreReplicaLog,
        tables: ReplicatedTables,
        *,
        access: AccessControl | None = None,
        tls: ClientTls | None = None,
        epochs: EpochFile | None = None,
        autoswitch: AutoSwitchReplica | None = None,
    ) -> None:
        self._core = core
        self._access = access
        self._master = master
        self._log = log
        self._epochs = epochs
        self._tls = tls
        self._autoswitch = autoswitch
        self._tables = tables
        self._receiver = TableReceiver(core.role, tables, self._reconnect)
        self._credentials: Credentials | None = None
        self._awaits_flush = False
        self._said = ""
        # Whether the next connection uses TLS: as the master answered, or as a slave that requires proof tries.
        self._master_takes_tls = False
        # The last session begun without asking first; it shows whether the master answered.
        self._greeted: SlaveSession | None = None
        self._connection: MasterConnection | None = None

    def load(self) -> None:
        """Read the secret, and begin to acknowledge what is appended.  Raises ConfigError for haSecretFile."""
        self._credentials = credentials(self._core, self._access)
        self._core.store.confirmation.on_append.append(self._appended)

    def connected(self, connection: MasterConnection | None) -> None:
        """Take the open connection to the master; None once it has ended."""
        self._connection = connection

    def _appended(self) -> None:
        """Acknowledge at once: the master's senders wait, the listeners of this store need not come first."""
        if self._connection is not None:
            self._connection.acknowledge()

    def _reconnect(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)

    # Choice of the protocol

    async def new_link(self, address: str) -> SlaveLink | None:
        """Return the end of a connection to the master at `address`; None if it cannot be followed now."""
        own = self._credentials
        assert own is not None
        if not own.admits_plain:
            return self._unasked_session(address, own)
        speaks = await self._master_speaks_sessions()
        if speaks is None or not self._admits_transport(address):
            return None
        if speaks:
            return self._session(own)
        rules, now = slave_rules(self._core.config.store), self._core.clock.monotonic()
        if self._autoswitch is not None:
            self._say(f"the master at {address} speaks RocketMQ's protocol of controller mode")
            return AutoSwitchSlave(rules, self._log, self._autoswitch, now)
        self._say(f"the master at {address} speaks the plain protocol")
        self._log.confirmed(NO_LIMIT)
        return SlaveLink(rules, self._log, now)

    def _session(self, own: Credentials, dialed: str = "") -> SlaveSession:
        store = self._core.config.store
        rules, now = slave_rules(store), self._core.clock.monotonic()
        self._log.confirmed(NO_LIMIT)
        return SlaveSession(
            rules, self._log, own, self._receiver.apply, now, dialed=dialed, own_tables=self._own_tables,
            epochs=self._epochs, is_learner=store.async_learner, from_last_segment=store.sync_from_last_file,
        )  # fmt: skip

    def _own_tables(self) -> list[TableUpdate]:
        """Return the tables for a master that lost its own with its log."""
        return [TableUpdate(0, table.name, table.encode()) for table in self._tables.all]

    def _unasked_session(self, address: str, own: Credentials) -> SlaveSession | None:
        """Return a session that greets at once, because only the greeting proves both ends.

        With tls.enable and haAllowCleartext, TLS and cleartext alternate until the master answers.
        """
        store = self._core.config.store
        if not store.ha_session_enable:
            self._say("haSessionEnable = false: no master can prove itself, so none is followed; see haAllowPlainPeers")
            return None
        was_answered = self._greeted is None or self._greeted.epoch >= 0
        if self._tls is None:
            self._master_takes_tls = False
        elif self._greeted is None or not store.ha_allow_cleartext:
            self._master_takes_tls = True
        elif not was_answered:
            self._master_takes_tls = not self._master_takes_tls
        self._say(f"the master at {address} must prove itself, tls={self._master_takes_tls}")
        # The configured address may be translated on the way.  An address from a name server must be the master's own.
        self._greeted = self._session(own, "" if fixed_ha_address(store) else address)
        return self._greeted

    def _admits_transport(self, address: str) -> bool:
        """Return whether the master offers the transport that this broker requires."""
        if self._tls is None or self._master_takes_tls or self._core.config.store.ha_allow_cleartext:
            return True
        self._say(f"the master at {address} offers cleartext, but tls.enable is set; see haAllowCleartext")
        return False

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the connection for the last `new_link`; None for cleartext."""
        tls = self._tls
        return tls.context() if tls is not None and self._master_takes_tls else None

    @property
    def _version(self) -> int:
        """Version of the sessions that this slave speaks: controller mode has one of its own."""
        return VERSION if self._epochs is None else EPOCH_VERSION

    async def _master_speaks_sessions(self) -> bool | None:
        """Ask the master; return None if it does not answer."""
        master, broker = str(self._master), self._core.config.broker
        self._master_takes_tls = False
        if not self._core.config.store.ha_session_enable or not master:
            # With haMasterAddress only the address of its port for slaves may be known.
            return False
        header = NegotiateHaSessionRequestHeader(
            cluster_name=broker.broker_cluster_name, broker_name=broker.broker_name, broker_id=broker.broker_id,
            version=self._version,
        )  # fmt: skip
        try:
            answer = await self._core.client.invoke(
                master, RequestCode.NEGOTIATE_HA_SESSION, header, timeout_s=_TIMEOUT_S
            )
        except (ClientError, ProtocolError) as error:
            self._say(f"the master at {master} does not answer which protocol it speaks: {error}")
            silent = self._core.client.open_channel(master) if isinstance(error, RemotingTimeout) else None
            if silent is not None:
                # A device on the way may have dropped the connection, and the next try would use it again.
                silent.abort("no answer")
            return None
        if answer.code == ResponseCode.SUCCESS:
            found = answer.header(NegotiateHaSessionResponseHeader)
            if found.version != self._version:
                mode = "is" if self._epochs is None else "is not"
                self._say(f"the master at {master} {mode} in controller mode: set enableControllerMode alike on both")
                return None
            self._master_takes_tls = found.takes_tls
            self._say(f"the master at {master} speaks sessions")
            return True
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return False
        self._say(f"the master at {master} refuses: {answer.code} {answer.remark}")
        return None

    def _say(self, what: str) -> None:
        """Log the protocol once for each change."""
        if what != self._said:
            self._said = what
            logger.info("event=ha_protocol detail=%r", what)

    # Flushed offset

    def received(self, connection: MasterConnection) -> None:
        """Acknowledge what the master sent once it is on the disk."""
        log, link = self._log, connection.link
        if self._awaits_flush or not isinstance(link, SlaveSession) or log.flushed_offset >= log.end_offset:
            return
        self._awaits_flush = True
        store = self._core.store
        # A master that counts flushed offsets asks for a flush; otherwise report the next regular one.
        when_flushed = store.when_flushed if link.counts_flushed else store.confirmation.when_flushed
        when_flushed(log.end_offset, self._flushed)

    def _flushed(self, error: StoreError | None) -> None:
        self._awaits_flush = False
        connection = self._connection
        if error is None and connection is not None:
            connection.acknowledge()
            self.received(connection)
