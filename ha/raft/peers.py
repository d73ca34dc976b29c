"""The connections of one member to the others, over TCP or TLS: who connects, greetings, frames, retries.

Of two members the one with the lower id connects.  A newer connection of the same member replaces the older one, whose
late messages are dropped: pysyncobj relies on their order.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from ha.raft.consensus import Member
from ha.raft.frames import FrameReader, FrameWriter
from ha.raft.greeting import (
    NONCE_BYTES,
    Accepted,
    Acceptor,
    Claims,
    Dialer,
    Hello,
    Met,
    Proof,
    Welcome,
    greeting_size,
    pack,
    unpack,
)
from ha.raft.messages import Message
from sprocket.common.errors import ConfigError, ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.tls.entrance import Entrance
from sprocket.remoting.tls.watch import ServerTls

logger = logging.getLogger(__name__)

_GREETING_LIMIT_S: Final = 3.0
# A member sends HELLO at once.  The sweep closes silent connections after 1.5 to 2 s.
_SILENT_S: Final = 1.5
_SWEEP_S: Final = 0.5
_FIRST_RETRY_S: Final = 0.1
_LAST_RETRY_S: Final = 1.0
_READ_BYTES: Final = 256 * 1024
# Unsent bytes at which a connection is closed: its member does not read.  Above what one turn may send.
_MAX_UNSENT_BYTES: Final = 32 * 1024 * 1024
_MAX_GREETING: Final = 64
# Of a reason in the log, which may quote a stranger.
_MAX_LOGGED: Final = 500
# Messages of all members that wait for this member.  Above it nothing is read.
_MAX_WAITING: Final = 64
T = TypeVar("T", bound=msgspec.Struct)


class Link(Protocol):
    """One connection to another member."""

    @property
    def claims(self) -> Claims:
        """What the other member said of itself in the greeting."""

    def send(self, message: Message) -> None:
        """Send `message`, or drop it if the connection is closed."""

    def abort(self, reason: str) -> None:
        """Close the connection."""


@dataclass(frozen=True)
class Event:
    """A message that came over a link; with `message` None, the link's begin or, if it is not `is_open`, its end."""

    link: Link
    message: Message | None = None
    is_open: bool = True


class Inbox:
    """Events in the order in which they came; bounded, so that a member that floods is not read further."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._has_room = asyncio.Event()
        # Set whenever there is work for the member.
        self.wake = asyncio.Event()

    async def put(self, event: Event) -> None:
        """Add an event, as soon as there is room."""
        while len(self._events) >= _MAX_WAITING:
            self._has_room.clear()
            await self._has_room.wait()
        self._events.append(event)
        self.wake.set()

    def take(self) -> list[Event]:
        """Remove and return all events."""
        events = list(self._events)
        self._events.clear()
        self._has_room.set()
        return events


class Peers(Protocol):
    """All links of one member.  A test may pass its own."""

    async def start(self, inbox: Inbox, claims: Callable[[], Claims], judge: Callable[[Claims], str]) -> None:
        """Put events into `inbox`.  `claims` are this member's; `judge` returns why another one is refused, or ""."""

    async def close(self) -> None:
        """Close all links."""


@dataclass(frozen=True)
class Security:
    """Secret of the group, and TLS.  Without `secret` no member proves who it is."""

    random_bytes: Callable[[int], bytes]
    secret: bytes = b""
    server_tls: ServerTls | None = None
    # The TLS context of the next connection; None for cleartext.
    client_context: Callable[[], ssl.SSLContext | None] = lambda: None


class _Connection:
    """A `Link` over a socket, after its greeting."""

    def __init__(self, writer: asyncio.StreamWriter, met: Met, own_id: str) -> None:
        self._writer = writer
        self._frames = FrameWriter(met.key, own_id)
        self._reader = FrameReader(met.key, met.claims.member_id)
        self.claims = met.claims

    def send(self, message: Message) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            return
        self._writer.write(self._frames.frame(message))
        if transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            self.abort("it does not read")

    def abort(self, reason: str) -> None:
        if not self._writer.transport.is_closing():
            peer_lines.warning(
                logger, self.claims.member_id, "event=raft_link_closed member=%s reason=%r", self.claims.member_id,
                reason,
            )  # fmt: skip
            self._writer.transport.abort()

    async def run(self, reader: asyncio.StreamReader, inbox: Inbox) -> None:
        """Put the other member's messages into `inbox` until the connection ends."""
        try:
            await inbox.put(Event(self))
            try:
                while data := await reader.read(_READ_BYTES):
                    for message in self._reader.feed(data):
                        await inbox.put(Event(self, message))
            except ProtocolError as error:
                self.abort(str(error))
            except OSError as error:
                peer_lines.info(
                    logger, self.claims.member_id, "event=raft_link_lost member=%s reason=%r", self.claims.member_id,
                    str(error),
                )  # fmt: skip
            await inbox.put(Event(self, is_open=False))
        finally:
            self._writer.transport.abort()


class TcpPeers:
    """`Peers` over sockets."""

    def __init__(self, own: Member, members: Sequence[Member], security: Security) -> None:
        self._own = own
        self._others = {one.id: one for one in members if one.id != own.id}
        self._security = security
        self._server: asyncio.Server | None = None
        self._entrance: Entrance | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Connections in their greeting, the oldest first, and whether HELLO was a member's.
        self._guests: dict[asyncio.StreamWriter, bool] = {}
        # Hosts of members: as configured, and from where they have come.
        self._hosts = {one.host for one in self._others.values()}
        # Members that send HELLO with a proof, so that one without it cannot be theirs.
        self._proving: set[str] = set()
        self._inbox = Inbox()
        self._claims: Callable[[], Claims] = _unset
        self._judge: Callable[[Claims], str] = _refuse_all
        # Member id -> last reason that was logged, so that each is logged once.
        self._logged: dict[str, str] = {}

    async def start(self, inbox: Inbox, claims: Callable[[], Claims], judge: Callable[[Claims], str]) -> None:
        """Listen and connect.  Raises `ConfigError` if the port cannot be had."""
        self._inbox, self._claims, self._judge = inbox, claims, judge
        loop = asyncio.get_running_loop()
        tls = self._security.server_tls
        if tls is not None:
            self._entrance = Entrance(
                tls, self._new_protocol, silent_s=_SILENT_S, handshake_s=_GREETING_LIMIT_S, max_waiting=_MAX_GREETING,
                is_known=self._hosts.__contains__,
            )  # fmt: skip
        entrance = self._entrance
        try:
            self._server = await loop.create_server(
                self._new_protocol if entrance is None else entrance.visitor, self._own.host, self._own.port
            )
        except OSError as error:
            raise ConfigError(f"member {self._own} cannot listen: {error}: check its address in the members") from error
        if not self._security.secret:
            logger.warning("event=raft_open group_members_prove_nothing=true reason=%r", "no secret is configured")
        for other in self._others.values():
            if self._own.id < other.id:
                self._spawn(self._keep_dialing(other))
        if entrance is not None:
            self._spawn(self._sweep(entrance))

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        if self._entrance is not None:
            self._entrance.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self, entrance: Entrance) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            entrance.sweep(asyncio.get_running_loop().time())

    def _new_protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=_READ_BYTES)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._spawn(self._accept(reader, writer))

        return asyncio.StreamReaderProtocol(reader, connected)

    # The end that was connected to

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._guests) >= _MAX_GREETING:
            # The oldest stranger leaves: a new one may be a member.
            loser = min(self._guests, key=lambda one: (self._guests[one], _host_of(one) in self._hosts))
            del self._guests[loser]
            loser.transport.abort()
        self._guests[writer] = False
        connection = None
        try:
            async with asyncio.timeout(_GREETING_LIMIT_S):
                connection = await self._greet_back(reader, writer)
        except (ProtocolError, OSError, EOFError, TimeoutError) as error:
            peer = writer.get_extra_info("peername")
            peer_lines.warning(
                logger, peer or "", "event=raft_greeting_failed peer=%s reason=%r", peer,
                str(error) or type(error).__name__,
            )  # fmt: skip
        finally:
            self._guests.pop(writer, None)
            if connection is None:
                writer.close()
        if connection is not None:
            await connection.run(reader, self._inbox)

    async def _greet_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Connection | None:
        async with asyncio.timeout(_SILENT_S):
            hello = await _receive(reader, Hello)
        name = hello.claims.member_id
        refusal = "" if name in self._others else f"{name!r} is not a member of group {self._claims().group}"
        refusal = refusal or self._judge(hello.claims)
        end = Acceptor(
            self._claims(), hello, self._security.secret, self._nonce(), refusal,
            # Members with higher ids are called, and do not call.
            may_be_older=name < self._own.id and name not in self._proving,
        )  # fmt: skip
        if end.is_proven and writer in self._guests:
            self._guests[writer] = True
        writer.write(pack(end.welcome))
        reason = end.refusal
        if not reason:
            reason = end.check(await _receive(reader, Proof))
            writer.write(pack(Accepted(reason)))
        if reason:
            self._log_refused(name, reason)
            await writer.drain()
            return None
        if end.is_proven:
            self._proving.add(name)
            self._hosts.add(_host_of(writer))
        return self._met(writer, end.met())

    # The end that connects

    async def _keep_dialing(self, other: Member) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                if await self._dial(other):
                    retry_s = _FIRST_RETRY_S
            except Exception:
                # A bug or a strange address.  Without this loop the member would be cut off until the next start.
                peer_lines.error(logger, other.id, "event=raft_dial_failed member=%s", other.id, exc_info=True)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _LAST_RETRY_S)

    async def _dial(self, other: Member) -> bool:
        """Connect to `other` and stay until the connection ends.  Return whether the greeting succeeded."""
        writer, connection = None, None
        try:
            async with asyncio.timeout(_GREETING_LIMIT_S):
                context = self._security.client_context()
                reader, writer = await asyncio.open_connection(
                    other.host, other.port, ssl=context, limit=_READ_BYTES,
                    server_hostname=None if context is None else other.host,
                )  # fmt: skip
                connection = await self._greet(other, reader, writer)
        except (ProtocolError, ConfigError, OSError, EOFError, TimeoutError) as error:
            self._log_refused(other.id, str(error) or type(error).__name__)
        finally:
            if connection is None and writer is not None:
                writer.transport.abort()
        if connection is None:
            return False
        await connection.run(reader, self._inbox)
        return True

    async def _greet(
        self, other: Member, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _Connection | None:
        end = Dialer(self._claims(), other.id, self._security.secret, self._nonce())
        writer.write(pack(end.hello))
        welcome = await _receive(reader, Welcome)
        if welcome.refusal:
            raise ProtocolError("raft_refused", f"member {other.id} refuses: {welcome.refusal}")
        reason = end.reason_against(welcome) or self._judge(welcome.claims)
        writer.write(pack(Proof(reason, b"" if reason else end.proof(welcome))))
        if reason:
            await writer.drain()
            raise ProtocolError("raft_refused", reason)
        accepted = await _receive(reader, Accepted)
        if accepted.refusal:
            raise ProtocolError("raft_refused", f"member {other.id} refuses: {accepted.refusal}")
        return self._met(writer, end.met(welcome))

    # Both

    def _met(self, writer: asyncio.StreamWriter, met: Met) -> _Connection:
        self._logged.pop(met.claims.member_id, None)
        peer_lines.info(
            logger, met.claims.member_id, "event=raft_link_opened member=%s disk=%s", met.claims.member_id,
            met.claims.disk_id[:8],
        )  # fmt: skip
        return _Connection(writer, met, self._own.id)

    def _nonce(self) -> bytes:
        return self._security.random_bytes(NONCE_BYTES)

    def _log_refused(self, member_id: str, reason: str) -> None:
        known = member_id if member_id in self._others else ""
        if self._logged.get(known) != reason:
            self._logged[known] = reason
            peer_lines.warning(
                logger, "", "event=raft_link_refused member=%.64s reason=%r", member_id, reason[:_MAX_LOGGED]
            )


def _host_of(writer: asyncio.StreamWriter) -> str:
    return str((writer.get_extra_info("peername") or ("",))[0])


async def _receive(reader: asyncio.StreamReader, kind: type[T]) -> T:
    """Return the next message of a greeting.  Raises `ProtocolError`, or `EOFError` if the connection ended."""
    return unpack(await reader.readexactly(greeting_size(await reader.readexactly(4))), kind)


def _unset() -> Claims:
    raise AssertionError("the peers are not started")


def _refuse_all(_: Claims) -> str:
    return "the member is not started"
