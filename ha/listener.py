"""The master's port for slaves: one `MasterLink` per connection, driven by the event loop.

A piece of the log goes from the mapping to the socket.  The transport's buffer bounds what waits for a slow slave.
Source: RocketMQ 5.3.3, `DefaultHAService`, `AcceptSocketService`.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final, Protocol, cast

from ha.autoswitch.master_link import AutoSwitchMaster, AutoSwitchRules
from ha.hello import is_hello
from ha.master_link import LinkRules, MasterLink
from ha.master_session import MasterSession, SessionLog, SessionRules
from ha.replicas import Replicas
from ha.table_queue import TableUpdate
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, ProtocolError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.flow.joined_buffers import write_buffers
from sprocket.remoting.serving.listening import CannotListen, KeptPort
from sprocket.remoting.tls.entrance import Entrance
from sprocket.remoting.tls.watch import ServerTls

logger = logging.getLogger(__name__)

# Bytes that may wait for one slave before reading of the log pauses for it.
_AHEAD_BYTES: Final = 4 * 1024 * 1024
# A master has few slaves; more connections than this are a mistake.
_MAX_SLAVES: Final = 64
_SWEEP_S: Final = 1.0


class Sessions(Protocol):
    """A master's sessions with Sprocket slaves."""

    # Called before the log is read for a session, to queue what its slave must know before the next piece.
    before_log: Callable[[MasterSession], None]

    @property
    def rules(self) -> SessionRules | None:
        """Rules of new sessions; None while all slaves speak the plain protocol."""


class SlaveConnection(asyncio.Protocol):
    """One connected slave."""

    def __init__(self, listener: "SlaveListener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False
        self.peer: tuple[str, int] = ("", 0)
        self._is_new = True
        self.link = listener.new_link()

    @property
    def address(self) -> str:
        """``host:port`` of the slave's end."""
        return f"{self.peer[0]}:{self.peer[1]}"

    @property
    def identity(self) -> Hashable:
        """What tells this slave from others, whichever of its connections this is."""
        identity = self.link.identity
        return self.peer[0] if identity is None else identity.place

    @property
    def is_stranger(self) -> bool:
        """Whether no slave is known here.  One that sends what the master lost has greeted, but asks for no log yet."""
        return self.link.identity is None and self.link.requested_offset is None

    @property
    def is_secured(self) -> bool:
        """Whether the connection uses TLS."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def session(self) -> MasterSession | None:
        """The link, if the slave is a Sprocket broker; else None."""
        return self.link if isinstance(self.link, MasterSession) else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_AHEAD_BYTES)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        if not self._listener.join(self):
            self.close("too many slaves")
            return
        self._tick()

    def data_received(self, data: bytes) -> None:
        listener = self._listener
        if self._is_new and not self._choose_link(data):
            return
        link = self.link
        is_first = link.requested_offset is None
        try:
            has_acked = link.received(data, listener.now())
        except ProtocolError as error:
            self.close(error.detail)
            return
        except StoreError as error:
            self.close(str(error))
            return
        if is_first and link.requested_offset is not None:
            peer_lines.info(
                logger, self.address, "event=slave_joined slave=%s identity=%r log_end=%d from=%d",
                self.address, str(self.identity), link.requested_offset, link.next_offset,
            )  # fmt: skip
        if is_first and link.requested_offset is not None and self.session is None:
            listener.plain_slave_joined(self)
        if has_acked:
            listener.acknowledged(self)
        if is_first:
            if link.identity is not None:
                listener.replace_older(self)
            self.pump()

    def _choose_link(self, data: bytes) -> bool:
        """Choose the protocol by the first byte; return whether the slave may speak it.

        A session begins with a negative number.  Neither of RocketMQ's protocols does, and the mode tells them apart.
        """
        self._is_new = False
        session = self._listener.new_session() if is_hello(data) else None
        if session is not None:
            self.link = session
        elif not self._listener.admits_plain:
            self.close(
                "the slave speaks RocketMQ's protocol, which proves nothing; to accept it, set haAllowPlainPeers"
            )
            return False
        return True

    def pump(self) -> None:
        """Write what is due, as far as the slave reads it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        session = self.session
        if session is not None and session.requested_offset is not None:
            self._listener.before_log(session)
        now = self._listener.now()
        while not self._is_full and (buffers := self.link.next_piece(now)):
            # A head alone would wake the slave for nothing.
            write_buffers(transport, buffers, sum(map(len, buffers)))
            if self.link.is_drained:
                break
        if session is not None and session.refusal:
            peer_lines.warning(
                logger, self.address, "event=slave_refused slave=%s reason=%r", self.address, session.refusal
            )
            transport.close()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.pump()

    def _tick(self) -> None:
        now = self._listener.now()
        if self.link.is_expired(now):
            self.close("silent for too long")
            return
        self.pump()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(self.link.wait_s(now), 0.01), self._tick)

    def close(self, reason: str) -> None:
        """Abort the connection."""
        if self._transport is not None and not self._transport.is_closing():
            peer_lines.warning(logger, self.address, "event=slave_closed slave=%s reason=%r", self.address, reason)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._listener.left(self)


class SlaveListener:
    """Listener for slaves, with what they have acknowledged.  Lives in the event loop's thread.

    `on_acknowledged` is called when a slave acknowledged more or disconnected.  Without `sessions` all slaves speak
    RocketMQ's protocol: that of controller mode with `autoswitch`, else the plain one.  `is_awaited` means that senders
    wait for slaves.  Without `tls` no connection uses TLS.  Where TLS is required, `allows_cleartext` accepts slaves
    without it.  A `port` stays bound after `stop`.
    """

    def __init__(
        self,
        rules: LinkRules,
        log: SessionLog,
        replicas: Replicas,
        clock: Clock,
        on_acknowledged: Callable[[], None],
        *,
        sessions: Sessions | None = None,
        autoswitch: AutoSwitchRules | None = None,
        is_awaited: bool = False,
        tls: ServerTls | None = None,
        allows_cleartext: bool = False,
        port: KeptPort | None = None,
    ) -> None:
        self._rules = rules
        # With `tls` the first byte of a connection tells whether it is TLS.  A slave has haHousekeepingInterval to send
        # it.
        self._entrance = None if tls is None else self._new_entrance(tls, allows_cleartext)
        self._sweep: asyncio.TimerHandle | None = None
        self._is_awaited = is_awaited
        self._log = log
        self._clock = clock
        self._port = port or KeptPort()
        self._is_port_kept = port is not None
        self._address = "", 0
        self._on_acknowledged = on_acknowledged
        self._is_pumping = False
        # The highest offset that a slave may have: the log's end at the start, or what was sent since on closed
        # connections.
        self._known_offset = 0
        self.replicas = replicas
        self._sessions = sessions
        self._autoswitch = autoswitch
        self.before_log: Callable[[MasterSession], None] = _nothing if sessions is None else sessions.before_log
        # In the order of connecting.
        self.connections: list[SlaveConnection] = []

    async def bind(self, host: str, port: int) -> int:
        """Bind the port without serving it, and return it.  Raises ConfigError if it cannot be bound."""
        self._address = host, port
        try:
            taken = await self._port.bind(host, port)
        except OSError as error:
            raise self._cannot_listen(error) from None
        self._address = host, taken
        return taken

    async def start(self) -> None:
        """Serve the port of `bind`.  Raises ConfigError if another process listens there by now.

        Slaves may have what the log holds at this moment.
        """
        self._known_offset = self._log.end_offset
        try:
            await self._port.serve(self._new_protocol)
        except OSError as error:
            raise self._cannot_listen(error) from None
        logger.info("event=ha_listening address=%s:%d", *self._address)
        self._sweep_and_repeat()

    def _cannot_listen(self, error: OSError) -> ConfigError:
        return CannotListen(*self._address, error, "haListenPort")

    def _new_entrance(self, tls: ServerTls, allows_cleartext: bool) -> Entrance:
        return Entrance(
            tls, lambda: SlaveConnection(self), silent_s=self._rules.housekeeping_s, allows_plain=allows_cleartext,
            max_waiting=_MAX_SLAVES,
        )  # fmt: skip

    def _new_protocol(self) -> asyncio.Protocol:
        return SlaveConnection(self) if self._entrance is None else self._entrance.visitor()

    def _sweep_and_repeat(self) -> None:
        if self._entrance is not None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(_SWEEP_S, self._sweep_and_repeat)
            self._entrance.sweep(loop.time())

    def stop(self) -> None:
        """Stop listening, and close all connections."""
        if self._is_port_kept:
            self._port.leave()
        else:
            self._port.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._entrance is not None:
            self._entrance.close()
        self.close_all("the master stops")

    def log_grew(self) -> None:
        """Send what was appended: in the next turn of the loop, or at once if senders wait for slaves."""
        if not self.connections:
            return
        if self._is_awaited:
            for connection in list(self.connections):
                connection.pump()
        elif not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump_all)

    def _pump_all(self) -> None:
        self._is_pumping = False
        for connection in list(self.connections):
            connection.pump()

    @property
    def sessions(self) -> list[MasterSession]:
        """Sessions of the Sprocket slaves that follow the log."""
        found = (connection.session for connection in self.connections)
        return [one for one in found if one is not None and one.requested_offset is not None]

    def close_all(self, reason: str) -> None:
        """Close all connections, such as those of an epoch that is over.  Slaves connect again."""
        for connection in list(self.connections):
            connection.close(reason)

    def publish(self, changed: list[TableUpdate]) -> None:
        """Queue changed tables for all slaves that have the previous ones, each after the log that it requires."""
        for session in self.sessions:
            for update in changed:
                session.tables.add(update)
        self.log_grew()

    # For the connections

    def now(self) -> float:
        """Return the monotonic clock's time, in seconds."""
        return self._clock.monotonic()

    def new_link(self) -> MasterLink:
        """Return the master's end of a new connection to a slave that speaks no session."""
        if self._autoswitch is None:
            return MasterLink(self._rules, self._log, self.now(), self.known_offset)
        return AutoSwitchMaster(self._rules, self._autoswitch, self._log, self.now(), self.known_offset)

    def new_session(self) -> MasterSession | None:
        """Return the master's end of a new session; None if sessions are off."""
        rules = self._session_rules
        if rules is None:
            return None
        return MasterSession(self._session_link_rules(), rules, self._log, self.now())

    @property
    def _session_rules(self) -> SessionRules | None:
        return None if self._sessions is None else self._sessions.rules

    def _session_link_rules(self) -> LinkRules:
        return replace(self._rules, batch_bytes=self._rules.session_batch_bytes or self._rules.batch_bytes)

    def configure(self, rules: LinkRules) -> None:
        """Apply changed intervals and sizes, also to connected slaves."""
        self._rules = rules
        for connection in self.connections:
            is_session = isinstance(connection.link, MasterSession)
            connection.link.configure(self._session_link_rules() if is_session else rules)

    @property
    def admits_plain(self) -> bool:
        """Whether a slave may speak the plain protocol."""
        rules = self._session_rules
        return rules is None or rules.credentials.admits_plain

    def plain_slave_joined(self, connection: SlaveConnection) -> None:
        """Tell the tail recovery that a plain slave follows: if the master's log is empty, the slave's is too."""
        rules = self._session_rules
        if rules is not None and not self._log.end_offset:
            rules.tail.compared(connection.link, 0, connection.peer[0])

    def replace_older(self, connection: SlaveConnection) -> None:
        """Close older connections of the same slave: it reconnected, perhaps with an empty store."""
        for other in list(self.connections):
            if other is not connection and other.identity == connection.identity:
                other.close("the same slave reconnected")

    def known_offset(self) -> int:
        """Return the highest offset that a slave can have: the log's end at the start, or what was sent since."""
        return max([self._known_offset, *(connection.link.next_offset for connection in self.connections)])

    def join(self, connection: SlaveConnection) -> bool:
        """Add a connection; return False if there are too many slaves.

        It takes the place of the oldest stranger, so strangers keep no slave out.
        """
        if len(self.connections) >= _MAX_SLAVES:
            oldest = next((one for one in self.connections if one.is_stranger), None)
            if oldest is None:
                return False
            oldest.close("too many connections, and this one has neither greeted nor asked for the log")
            self.left(oldest)
        self.connections.append(connection)
        return True

    def acknowledged(self, connection: SlaveConnection) -> None:
        link = connection.link
        identity = link.identity
        self.replicas.acknowledged(
            connection.identity, connection, link.acked_offset, self._log.end_offset, self.now(), link.flushed_offset,
            broker_id=None if identity is None else identity.broker_id, is_learner=link.is_learner,
        )  # fmt: skip
        self._on_acknowledged()

    def left(self, connection: SlaveConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._known_offset = max(self._known_offset, connection.link.next_offset)
            self.replicas.left(connection.identity, connection)
            rules = self._session_rules
            if rules is not None:
                rules.tail.left(connection.link)
            peer_lines.info(
                logger, connection.address, "event=slave_left slave=%s acked=%d", connection.address,
                connection.link.acked_offset,
            )  # fmt: skip
            self._on_acknowledged()


def _nothing(_: MasterSession) -> None:
    """Queue nothing: without sessions."""
