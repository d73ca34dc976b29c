"""The transport: one connection to a cluster, and the delivery of what arrives."""

import os
from pathlib import Path
from typing import Any, Final

from kombu.transport import base, virtual

from sprocket.client.connect import connect
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.errors import BrokerRefused, IllegalArgument
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError
from sprocket.contrib.kombu.channel import Channel
from sprocket.contrib.kombu.cluster import Cluster, Naming
from sprocket.contrib.kombu.inbox import Inbox
from sprocket.contrib.pops import task_pops
from sprocket.remoting.credentials import Credentials, TokenCredentials
from sprocket.remoting.tls.settings import TlsSettings

_NAME_SERVER_PORT: Final = 9876
_OPTIONS: Final = {"prefix": str, "topic_queue_nums": int, "cluster": str}
# Options that kombu and Celery read themselves, or set for every transport.
_OTHERS: Final = frozenset(
    {
        "max_retries", "interval_start", "interval_step", "interval_max", "polling_interval", "confirm_publish",
        "client_properties", "errback", "callback", "retry_policy",
    }
)  # fmt: skip
_VISIBILITY_S: Final = 60.0
# One call delivers no more than this before it returns to the application's loop.
_AT_ONCE: Final = 256


class Transport(virtual.Transport):  # type: ignore[misc]
    """Transport of kombu over a Sprocket or RocketMQ 5 cluster.

    Its address is ``sprocket://account:secret@name-server:9876/namespace``.

    Account, secret and namespace may be left out; an account without a secret is a token.

    `transport_options`:

    - `namesrv`: addresses of all name servers, ``a:9876;b:9876``, instead of the one in the URL
    - `visibility_timeout`: seconds after which the messages of a worker that died are delivered again (60)
    - `prefix`: what all topics and groups begin with
    - `topic_queue_nums`: queues of a new topic (8)
    - `cluster`: where topics are created (all clusters of the name server)
    """

    Channel = Channel
    driver_type = "sprocket"
    driver_name = "sprocket-mq"
    default_port = _NAME_SERVER_PORT
    polling_interval = None

    connection_errors = (OSError, SprocketError)
    channel_errors = (*virtual.Transport.channel_errors, IllegalArgument, BrokerRefused)
    implements = base.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: object) -> None:
        """Raises IllegalArgument for an option that there is not."""
        super().__init__(client, **kwargs)
        options = client.transport_options
        unknown = sorted(set(options) - {*_OPTIONS, "namesrv", "visibility_timeout", *_OTHERS})
        if unknown:
            known = ", ".join(["namesrv", "visibility_timeout", *_OPTIONS])
            raise IllegalArgument(f"broker_transport_options: {', '.join(unknown)} is unknown; there are {known}")
        self._pid = os.getpid()
        self.clock = SystemClock()
        given = {name: kind(options[name]) for name, kind in _OPTIONS.items() if name in options}
        host = client.virtual_host or "/"
        if host != "/":
            given["prefix"] = f"{host}%{given.get('prefix', '')}"
        self.naming = Naming(**given)
        self.pops = task_pops(PopSettings(pop_invisible_time_s=float(options.get("visibility_timeout", _VISIBILITY_S))))
        self.inbox = Inbox()
        self._cluster: Cluster | None = None

    def driver_version(self) -> str:
        """Return the version of this client."""
        from importlib.metadata import version

        return version("sprocket-mq")

    # Connection

    @property
    def cluster(self) -> Cluster:
        """The cluster.  Raises ConnectionError before `establish_connection` and after `close_connection`."""
        if self._cluster is None or not self.is_open:
            raise ConnectionError("the connection is closed")
        return self._cluster

    @property
    def is_open(self) -> bool:
        """Whether this process has opened the connection: a forked one has its parent's objects, not its threads."""
        return self._cluster is not None and self._pid == os.getpid()

    def establish_connection(self) -> "Transport":
        """Connect to the cluster.  Raises AdminError if no name server answers or there is no broker."""
        self._open()
        super().establish_connection()
        return self

    def _open(self) -> None:
        info = self.client
        host = f"{info.hostname or 'localhost'}:{info.port or self.default_port}"
        credentials = _credentials(info.userid, info.password)
        servers = info.transport_options.get("namesrv") or host
        mq = connect(servers, credentials=credentials, tls=_tls(info.ssl))
        cluster = Cluster(mq, self.naming, self.clock)
        shared_loop.acquire()
        try:
            shared_loop.call(cluster.start())
        except BaseException:
            shared_loop.call(cluster.close())
            shared_loop.release()
            raise
        self._cluster = cluster

    def close_connection(self, connection: object) -> None:
        """Close all channels, then the connection."""
        super().close_connection(connection)
        cluster, is_open = self._cluster, self.is_open
        self._cluster = None
        if cluster is not None and is_open:
            try:
                shared_loop.call(cluster.close())
            finally:
                shared_loop.release()
        self.inbox.close()

    def verify_connection(self, connection: object) -> bool:
        """Return whether the connection is open."""
        return self.is_open

    # Delivery

    def register_with_event_loop(self, connection: object, loop: Any) -> None:
        """Deliver in the event loop of a worker."""
        loop.add_reader(self.inbox.fileno(), self.on_readable)

    def on_readable(self) -> None:
        """Deliver what has arrived."""
        self.inbox.clear()
        self._deliver_waiting()

    def drain_events(self, connection: object, timeout: float | None = None) -> None:
        """Deliver what has arrived, waiting `timeout` seconds for the first message.  Raises TimeoutError."""
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        while not self._deliver_waiting():
            left_s = None if deadline is None else max(deadline - self.clock.monotonic(), 0.0)
            if not self.inbox.wait(left_s):
                raise TimeoutError
            self.inbox.clear()

    def _deliver_waiting(self) -> int:
        """Deliver to every channel what its prefetch count allows; return how many messages."""
        count = 0
        while count < _AT_ONCE and (item := self.inbox.pop()) is not None:
            channel, delivery = item
            queue = delivery.reader.bindings.queue
            if not isinstance(channel, Channel) or queue not in self._callbacks:
                shared_loop.call(delivery.reader.give_back(delivery.popped))
                continue
            count += 1
            self._deliver(channel.taken(delivery), queue)
        if count == _AT_ONCE:
            self.inbox.wake()
        return count


def _credentials(account: str | None, secret: str | None) -> Credentials | None:
    if not account:
        return None
    return Credentials(account, secret) if secret else TokenCredentials(account)


def _tls(ssl: object) -> TlsSettings | None:
    """Return TLS for kombu's `ssl`: True, or a dict with the files `ca_certs`, `certfile` and `keyfile`."""
    if not ssl:
        return None
    files = ssl if isinstance(ssl, dict) else {}
    trust, certificate, key = (
        Path(files[name]) if files.get(name) else None for name in ("ca_certs", "certfile", "keyfile")
    )
    return TlsSettings.for_client(trust, certificate, key)
