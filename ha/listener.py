"""The master's port for slaves: one `MasterLink` for each connection, driven by the event loop.

A piece of the log goes from the mapping to the socket; what a slow slave has not taken yet is bounded by the
transport's buffer.  Source: RocketMQ 5.3.3, `DefaultHAService`, `AcceptSocketService`.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final, cast

from ha.hello import is_hello
from ha.master_link import LinkRules, MasterLink
from ha.master_session import MasterSession, SessionLog, SessionRules
from ha.replicas import Replicas
from ha.table_queue import TableUpdate
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, ProtocolError, StoreError
from sprocket.remoting.listening import bound, reason_of, serve
from sprocket.remoting.tls.entrance import Entrance
from sprocket.remoting.tls.watch import ServerTls

logger = logging.getLogger(__name__)

# Bytes on their way to one slave before the log is read on for it.
_AHEAD_BYTES: Final = 4 * 1024 * 1024
# Slaves of one master are few; more connections than this are somebody else's mistake.
_MOST_SLAVES: Final = 64
_SWEEP_S: Final = 1.0


class SlaveConnection(asyncio.Protocol):
    """One slave that is connected."""

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
        """What tells this slave from others, however often it is connected."""
        session = self.session
        return session.identity.place if session is not None and session.identity is not None else self.peer[0]

    @property
    def is_secured(self) -> bool:
        """Whether it is TLS."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    @property
    def session(self) -> MasterSession | None:
        """The link, if the slave is Sprocket too."""
        return self.link if isinstance(self.link, MasterSession) else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_AHEAD_BYTES)
        self.peer = (transport.get_extra_info("peername") or ("", 0))[:2]
        if not self._listener.joined(self):
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
            logger.info(
                "event=slave_joined slave=%s identity=%r log_end=%d from=%d",
                self.address, str(self.identity), link.requested_offset, link.next_offset,
            )  # fmt: skip
        if is_first and link.requested_offset is not None and self.session is None:
            listener.plain_slave_came(self)
        if has_acked:
            listener.acknowledged(self)
        if is_first:
            if self.session is not None and self.session.identity is not None:
                listener.replace_older(self)
            self.pump()

    def _choose_link(self, data: bytes) -> bool:
        """The first byte tells which protocol the slave speaks; whether it may."""
        self._is_new = False
        session = self._listener.new_session() if is_hello(data) else None
        if session is not None:
            self.link = session
        elif not self._listener.admits_plain:
            self.close("it proves nothing, which is asked for here; haAllowPlainPeers would admit it")
            return False
        return True

    def pump(self, *, at_once: bool = False) -> None:
        """Write what there is, as far as the slave takes it; `at_once`: hand the first of it to the kernel now."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        session = self.session
        if session is not None and session.requested_offset is not None:
            self._listener.before_log(session)
        now = self._listener.now()
        if at_once and not self._is_full and not transport.get_write_buffer_size():
            # uvloop keeps what is written to the end of its turn, unless that is more than may be waiting.
            transport.set_write_buffer_limits(high=0)
            transport.write(b"".join(self.link.next_piece(now)))
            transport.set_write_buffer_limits(high=_AHEAD_BYTES)
        while not self._is_full and (buffers := self.link.next_piece(now)):
            for buffer in buffers:
                transport.write(buffer)
        if session is not None and session.refusal:
            logger.warning("event=slave_refused slave=%s reason=%r", self.address, session.refusal)
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
        """End the connection, at once."""
        if self._transport is not None and not self._transport.is_closing():
            logger.warning("event=slave_closed slave=%s reason=%r", self.address, reason)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._listener.left(self)


class SlaveListener:
    """Listens for slaves, and keeps what they have acknowledged.  Lives in the event loop's thread.

    `on_acknowledged` is called when a slave has more than before, or has gone.  Without `session_rules` all slaves
    speak the plain protocol.  `is_awaited` says that senders wait for slaves.  Without `tls` nothing is TLS; where it
    is demanded, `allows_cleartext` admits those that do not speak it.
    """

    def __init__(
        self,
        rules: LinkRules,
        log: SessionLog,
        replicas: Replicas,
        clock: Clock,
        on_acknowledged: Callable[[], None],
        session_rules: SessionRules | None = None,
        *,
        is_awaited: bool = False,
        tls: ServerTls | None = None,
        allows_cleartext: bool = False,
    ) -> None:
        self._rules = rules
        # With `tls` the first byte of a connection says whether it is TLS; a slave has as long for it as for a report.
        self._entrance = None if tls is None else self._new_entrance(tls, allows_cleartext)
        self._sweep: asyncio.TimerHandle | None = None
        self._is_awaited = is_awaited
        self._log = log
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._address = "", 0
        self._on_acknowledged = on_acknowledged
        self._is_pumping = False
        # What the log held at the start, or was sent since, to connections that have ended.
        self._known_offset = 0
        self.replicas = replicas
        self.session_rules = session_rules
        # Called before the log is read for a session: what its slave has to know before what comes next.
        self.before_log: Callable[[MasterSession], None] = lambda _: None
        # In the order in which they came.
        self.connections: list[SlaveConnection] = []

    async def bind(self, host: str, port: int) -> int:
        """Take the port without serving it; return it.  Raises ConfigError if it cannot be had."""
        self._address = host, port
        try:
            self._server = await bound(self._new_protocol, host, port)
        except OSError as error:
            raise self._cannot_listen(error) from None
        taken: int = self._server.sockets[0].getsockname()[1]
        self._address = host, taken
        return taken

    async def start(self) -> None:
        """Serve the port of `bind`.  Raises ConfigError if another process listens there by now.

        What the log holds by now is what slaves may have from before.
        """
        assert self._server is not None, "bind comes first"
        self._known_offset = self._log.end_offset
        try:
            await serve(self._server)
        except OSError as error:
            raise self._cannot_listen(error) from None
        logger.info("event=ha_listening address=%s:%d", *self._address)
        self._sweep_and_repeat()

    def _cannot_listen(self, error: OSError) -> ConfigError:
        host, port = self._address
        return ConfigError(
            f"haListenPort = {port}: cannot listen on {host}:{port}: {reason_of(error)}. "
            "Stop what uses the port, or choose another one with haListenPort."
        )

    def _new_entrance(self, tls: ServerTls, allows_cleartext: bool) -> Entrance:
        return Entrance(
            tls, lambda: SlaveConnection(self), silent_s=self._rules.housekeeping_s, allows_plain=allows_cleartext,
            max_waiting=_MOST_SLAVES,
        )  # fmt: skip

    def _new_protocol(self) -> asyncio.Protocol:
        return SlaveConnection(self) if self._entrance is None else self._entrance.visitor()

    def _sweep_and_repeat(self) -> None:
        if self._entrance is not None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(_SWEEP_S, self._sweep_and_repeat)
            self._entrance.sweep(loop.time())

    @property
    def takes_tls(self) -> bool:
        """Whether slaves may speak TLS."""
        return self._entrance is not None and self._entrance.takes_tls

    def stop(self) -> None:
        """Listen no longer, and end all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._sweep is not None:
            self._sweep.cancel()
        if self._entrance is not None:
            self._entrance.close()
        for connection in list(self.connections):
            connection.close("the master stops")

    def log_grew(self) -> None:
        """There is more to send: slaves get it in the next turn of the loop, or at once if senders wait for them."""
        if not self.connections:
            return
        if self._is_awaited:
            for connection in list(self.connections):
                connection.pump(at_once=True)
        elif not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump_all)

    def _pump_all(self) -> None:
        self._is_pumping = False
        for connection in list(self.connections):
            connection.pump()

    @property
    def sessions(self) -> list[MasterSession]:
        """Those of the slaves that are Sprocket too and follow the log."""
        found = (connection.session for connection in self.connections)
        return [one for one in found if one is not None and one.requested_offset is not None]

    def publish(self, changed: list[TableUpdate]) -> None:
        """Send what changed in tables to all slaves that know what was before, each behind the log it stands on."""
        for session in self.sessions:
            for update in changed:
                session.tables.add(update)
        self.log_grew()

    # For the connections

    def now(self) -> float:
        """Of the monotonic clock, seconds."""
        return self._clock.monotonic()

    def new_link(self) -> MasterLink:
        return MasterLink(self._rules, self._log, self.now(), self.known_offset)

    def new_session(self) -> MasterSession | None:
        """None if there are to be no sessions."""
        rules = self.session_rules
        if rules is None:
            return None
        return MasterSession(self._session_link_rules(), rules, self._log, self.now())

    def _session_link_rules(self) -> LinkRules:
        most_bytes = self._rules.session_batch_bytes or self._rules.batch_bytes
        return replace(self._rules, batch_bytes=most_bytes)

    def configure(self, rules: LinkRules) -> None:
        """Take changed intervals and sizes, also for the slaves that are connected."""
        self._rules = rules
        for connection in self.connections:
            is_session = isinstance(connection.link, MasterSession)
            connection.link.configure(self._session_link_rules() if is_session else rules)

    @property
    def admits_plain(self) -> bool:
        """Whether a slave may speak the plain protocol."""
        return self.session_rules is None or self.session_rules.credentials.admits_plain

    def plain_slave_came(self, connection: SlaveConnection) -> None:
        """A slave of the plain protocol follows: of an empty log it can only be empty itself."""
        if self.session_rules is not None and not self._log.end_offset:
            self.session_rules.tail.compared(connection.link, 0, connection.peer[0])

    def replace_older(self, connection: SlaveConnection) -> None:
        """End older connections of the same slave: it has come again, perhaps with an empty store."""
        for other in list(self.connections):
            if other is not connection and other.identity == connection.identity:
                other.close("the same slave has come again")

    def known_offset(self) -> int:
        """No slave can have more of this log: it ended here at the start, or was sent up to here since."""
        return max([self._known_offset, *(connection.link.next_offset for connection in self.connections)])

    def joined(self, connection: SlaveConnection) -> bool:
        """Whether there is room for one more."""
        if len(self.connections) >= _MOST_SLAVES:
            return False
        self.connections.append(connection)
        return True

    def acknowledged(self, connection: SlaveConnection) -> None:
        link = connection.link
        self.replicas.acknowledged(
            connection.identity, connection, link.acked_offset, self._log.end_offset, self.now(), link.flushed_offset
        )
        self._on_acknowledged()

    def left(self, connection: SlaveConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._known_offset = max(self._known_offset, connection.link.next_offset)
            self.replicas.left(connection.identity, connection)
            if self.session_rules is not None:
                self.session_rules.tail.left(connection.link)
            logger.info("event=slave_left slave=%s acked=%d", connection.address, connection.link.acked_offset)
            self._on_acknowledged()
