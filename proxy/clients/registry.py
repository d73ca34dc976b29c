"""Table of connected clients: settings, telemetry stream, and when each was last seen.

A client lives while it calls: heartbeats come every 10 s.  If accounts are known, its id belongs to the first that uses
it until the client ends or dies: no other account can end it or take over its stream.
Source: RocketMQ 5.3.3, `GrpcClientSettingsManager`, `GrpcChannelManager`, `ConsumerManager.scanNotActiveChannel`.
"""

import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from proxy.clients.telemetry_stream import TelemetryStream
from proxy.convert.resources import full_name
from proxy.status import Refusal
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import ConsumerData

logger = logging.getLogger(__name__)

_PRODUCER: Final = "publishing"
# Ids of clients are made up by callers, and each is remembered until it has been silent for long.
MAX_CLIENTS: Final = 65_536
# Settings of all clients, encoded.  Those of one have some hundred bytes.
MAX_SETTINGS_BYTES: Final = 64 * 1024 * 1024
# Settings up to this size are shared by all clients that report the same.
_SHARED_BYTES: Final = 1024
_SHARED_SETTINGS: Final = 1024


@lru_cache(_SHARED_SETTINGS)
def _shared(raw: bytes) -> wire.Settings:
    """Return settings that clients with the same ones share.  Nobody changes them."""
    settings: wire.Settings = wire.Settings.FromString(raw)
    return settings


class Client:
    """One client of `account`.  Times are monotonic s."""

    __slots__ = (
        "account",
        "called_at",
        "client_id",
        "consumer_data",
        "is_here",
        "reported",
        "seen_at",
        "settings_bytes",
        "stream",
        "stream_lost_at",
    )

    def __init__(self, client_id: str, account: str | None, seen_at: float) -> None:
        self.client_id = client_id
        self.account = account  # None if accounts need not prove themselves
        self.seen_at = seen_at  # by this process or by another worker of the proxy
        self.called_at = -1.0  # this process
        self.is_here = False  # its newest telemetry stream came to this process
        self.reported: wire.Settings | None = None  # what the client sent
        self.consumer_data: ConsumerData | None = None  # what `reported` says of its group, once asked for
        self.settings_bytes = 0
        self.stream: TelemetryStream | None = None
        self.stream_lost_at: float | None = None

    def joined(self, data: ConsumerData) -> None:
        """Keep what `reported` says of the client's group."""
        self.consumer_data = data

    @property
    def topics(self) -> list[str]:
        """Topics that a producer publishes to."""
        if not self.is_here or self.reported is None or self.reported.WhichOneof("pub_sub") != _PRODUCER:
            return []
        return [full_name(topic) for topic in self.reported.publishing.topics]


class Clients:
    """All clients.  `died` is called with the id of each that has gone."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        silent_s: float,
        lost_s: float,
        died: Callable[[str], None] = lambda client_id: None,
        max_clients: int = MAX_CLIENTS,
        max_settings_bytes: int = MAX_SETTINGS_BYTES,
    ) -> None:
        self._max_clients = max_clients
        self._max_settings_bytes = max_settings_bytes
        self._settings_bytes = 0
        self._monotonic = monotonic
        self._silent_s = silent_s
        self._lost_s = lost_s
        self._died = died
        # Called with a client that has reported here, one that ended itself, and one that is forgotten.
        self.on_report: list[Callable[[Client], None]] = []
        self.on_end: list[Callable[[Client], None]] = []
        self.on_forget: list[Callable[[Client], None]] = []
        self._clients: dict[str, Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def get(self, client_id: str) -> Client | None:
        """Return a client that is known."""
        return self._clients.get(client_id)

    def owned(self, client_id: str, account: str | None) -> Client | None:
        """Return a client that is known.  Raises Refusal if it is of another account."""
        client = self._clients.get(client_id)
        if client is not None and client.account != account:
            what = f"the client id {client_id} is in use by another account, use an id of your own"
            raise Refusal(wire.UNAUTHORIZED, what)
        return client

    def seen(self, client_id: str, account: str | None = None) -> Client:
        """Record a call of a client; return it.  Raises Refusal if there are too many, or it is of another account."""
        now = self._monotonic()
        client = self.owned(client_id, account)
        if client is None:
            if len(self._clients) >= self._max_clients:
                raise Refusal(wire.TOO_MANY_REQUESTS, f"this proxy has {self._max_clients} clients, use another one")
            client = self._clients[client_id] = Client(client_id, account, now)
        client.seen_at = client.called_at = now
        return client

    def is_of(self, client_id: str, account: str | None) -> bool:
        """Return whether a client is not known to be of another account."""
        client = self._clients.get(client_id)
        return client is None or client.account == account

    def heard(self, client_id: str, account: str | None) -> None:
        """Record that a client called another worker of this proxy.  Ignored if it is of another account here."""
        client = self._clients.get(client_id)
        if client is not None and client.account == account:
            client.seen_at = self._monotonic()

    def report(
        self, client_id: str, settings: wire.Settings, stream: TelemetryStream, account: str | None = None
    ) -> Client:
        """Record what a client reported on its telemetry stream.  Raises Refusal as `seen`."""
        if not self._has_room(client_id, settings):
            raise Refusal(wire.TOO_MANY_REQUESTS, "this proxy keeps too many settings of clients, use another one")
        client = self.seen(client_id, account)
        if client.stream is not stream:
            # The newest stream counts; the old one may be half open.
            previous, client.stream = client.stream, stream
            if previous is not None:
                previous.close()
        client.stream_lost_at = None
        client.is_here = True
        self._keep(client, settings)
        for listener in self.on_report:
            listener(client)
        return client

    def report_elsewhere(self, client_id: str, settings: wire.Settings, account: str | None = None) -> None:
        """Record what a client reported to another worker of this proxy.

        Ignored if there are too many, or if another account came here first.
        """
        if not self._has_room(client_id, settings):
            return
        client = self._clients.get(client_id)
        if client is None:
            if len(self._clients) >= self._max_clients:
                return
            client = self._clients[client_id] = Client(client_id, account, self._monotonic())
        elif client.account != account:
            return
        client.seen_at = self._monotonic()
        if client.stream is None:
            client.is_here = False
        self._keep(client, settings)

    def _has_room(self, client_id: str, settings: wire.Settings) -> bool:
        client = self._clients.get(client_id)
        grown = settings.ByteSize() - (0 if client is None else client.settings_bytes)
        return bool(self._settings_bytes + grown <= self._max_settings_bytes)

    def _keep(self, client: Client, settings: wire.Settings) -> None:
        client.consumer_data = None
        self._settings_bytes -= client.settings_bytes
        client.settings_bytes = settings.ByteSize()
        is_small = client.settings_bytes <= _SHARED_BYTES
        client.reported = _shared(settings.SerializeToString(deterministic=True)) if is_small else settings
        self._settings_bytes += client.settings_bytes

    def stream_ended(self, client_id: str, stream: TelemetryStream) -> None:
        """Record that a telemetry stream ended; the client may open another."""
        client = self._clients.get(client_id)
        if client is not None and client.stream is stream:
            client.stream = None
            client.stream_lost_at = self._monotonic()

    def remove(self, client_id: str) -> Client | None:
        """Forget a client that ends or has died; return it."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self._settings_bytes -= client.settings_bytes
            self._died(client_id)
            for listener in self.on_forget:
                listener(client)
        return client

    def end(self, client_id: str) -> None:
        """Forget a client that says that it ends."""
        client = self.remove(client_id)
        if client is not None:
            for listener in self.on_end:
                listener(client)

    def end_elsewhere(self, client_id: str, account: str | None) -> None:
        """Forget a client that ended at another worker of this proxy.  Ignored if it is of another account here."""
        if self.is_of(client_id, account):
            self.remove(client_id)

    def expire(self) -> list[str]:
        """Forget the clients that are silent for too long; return their ids."""
        now = self._monotonic()
        dead = [client.client_id for client in self._clients.values() if self._is_dead(client, now)]
        for client_id in dead:
            client = self.remove(client_id)
            if client is not None and client.stream is not None:
                client.stream.close()
            peer_lines.info(logger, "", "event=client_expired client=%r", client_id)
        return dead

    def _is_dead(self, client: Client, now: float) -> bool:
        if now - client.seen_at > self._silent_s:
            return True
        lost_at = client.stream_lost_at
        return lost_at is not None and now - max(lost_at, client.seen_at) > self._lost_s

    def publishing(self, topic: str) -> list[Client]:
        """Return the connected producers of `topic`."""
        return [client for client in self._clients.values() if client.stream is not None and topic in client.topics]
