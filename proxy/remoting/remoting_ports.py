"""The ports of the remoting protocol: their servers, their gate, and what they pass to clients.

Source: RocketMQ 5.3.3, `RemotingProtocolServer`.  A request that nobody serves here is answered
REQUEST_CODE_NOT_SUPPORTED by name.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import structs

from acl.auth.model import Action
from acl.auth.requests import check_rules
from acl.gate import Gate
from proxy.clients.members import Producers
from proxy.config import ProxyConfig
from proxy.listeners import Listener
from proxy.remoting.client_routes import ClientRoutes
from proxy.remoting.forwarder import Forwarder
from proxy.remoting.topic_routes import TopicRoutes
from sprocket.client.connection.wakeup import pause
from sprocket.common.errors import ConfigError
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.client import CheckTransactionStateRequestHeader
from sprocket.remoting.routes import AllFields, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ServerTls

logger = logging.getLogger(__name__)

# Sends under way have this time at a stop.
_GRACE_S: Final = 1.0
_GRACE_POLL_S: Final = 0.02


class RemotingPorts:
    """All remoting ports of a proxy, closed if remotingListenPort is negative.

    `routes` are served at each of them.  `gate` is None if requests need no signature.
    """

    def __init__(
        self,
        config: ProxyConfig,
        routes: Sequence[Route],
        topics: TopicRoutes,
        clients: ClientRoutes,
        forwarder: Forwarder,
        gate: Gate | None,
    ) -> None:
        self._config = config
        self._routes = routes
        self._topics = topics
        self._clients = clients
        self._forwarder = forwarder
        self._gate = gate
        self._tls = ServerTls(_tls_settings(config))
        self._servers: list[RemotingServer] = []
        self.listeners: list[Listener] = []

    async def open(self, *, is_shared: bool) -> None:
        """Bind the ports without serving.  Raises ConfigError.

        If they are shared, other processes of the proxy bind them too.
        """
        if self._config.remoting_listen_port < 0:
            return
        for wanted in [Listener("remoting", self._config.remoting_listen_port), *self._config.remoting_listeners]:
            index = len(self.listeners)
            self.listeners.append(wanted)
            server = self._server(partial(self.listeners.__getitem__, index), wanted.port, is_shared)
            self._servers.append(server)
            try:
                await server.bind()
            except ConfigError as error:
                remedy = "; remotingListenPort = -1 serves no remoting clients"
                raise ConfigError(f"remotingListenPort: {error}{remedy}") from None
            self.listeners[index] = replace(wanted, port=server.port)

    def _server(self, listener: Callable[[], Listener], port: int, is_shared: bool) -> RemotingServer:
        table = RouteTable([*self._routes, *self._clients.routes(), *self._topics.routes(listener)])
        if self._gate is not None:
            # Routes that pass on all fields have the rules of the same requests at a broker.
            check_rules(route for route in table.routes if route.header is not AllFields)
            table = self._gate.stand_before(table)
        settings = ConnectionSettings(bind_address=self._config.bind_address)
        server = RemotingServer(table, settings, port=port, tls=self._tls, reuse_port=is_shared)
        server.on_close.append(self._clients.closed)
        return server

    async def serve(self) -> None:
        """Serve requests."""
        for server in self._servers:
            await server.start()

    def look(self) -> None:
        """Read the certificate again if it has changed."""
        if self._servers:
            self._tls.reload()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return sum(len(server.channels) for server in self._servers)

    async def stop(self) -> None:
        """Take no new connections, let the sends under way end, and close."""
        for server in self._servers:
            await server.stop_accepting()
        for _ in range(round(_GRACE_S / _GRACE_POLL_S)):
            if not self._forwarder.in_flight_bytes:
                break
            await pause(_GRACE_POLL_S)
        for server in self._servers:
            await server.stop()


class TransactionChecks:
    """Questions of brokers about open transactions, passed to a remoting producer as they are.

    `choose` returns a random number below its argument.
    """

    def __init__(self, producers: Producers, gate: Gate | None, choose: Callable[[int], int]) -> None:
        self._producers = producers
        self._gate = gate
        self._choose = choose

    def passed(
        self, request: Request[CheckTransactionStateRequestHeader], group: str, topic: str, broker_name: str
    ) -> bool:
        """Ask a connected producer of `group` that may publish to `topic`.  Return whether there is one."""
        found = [one.channel for one in self._producers.members(group) if one.channel is not None]
        if self._gate is not None:
            # The half message is read by the client that is asked.
            found = [channel for channel in found if self._gate.allows(channel, topic, Action.PUB)]
        if not found:
            return False
        # The answer names the broker by this field.
        header = structs.replace(request.header, broker_name=broker_name)
        found[self._choose(len(found))].notify(RequestCode.CHECK_TRANSACTION_STATE, header, request.body)
        return True

    @property
    def groups(self) -> Iterable[str]:
        """Producer groups that send transactions."""
        return self._producers.transactional


def _tls_settings(config: ProxyConfig) -> TlsSettings:
    is_test = config.tls_test_mode_enable
    return TlsSettings(
        server_mode=config.tls_server_mode,
        config_file=None,
        test_mode_enable=is_test,
        server_key_path=None if is_test or not config.tls_key_path else Path(config.tls_key_path),
        server_cert_path=None if is_test or not config.tls_cert_path else Path(config.tls_cert_path),
    )
