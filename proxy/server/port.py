"""One port of the proxy: a gRPC server, and the entrance before it where TLS and plain text come to the same port."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from proxy.config import ProxyConfig
from proxy.listeners import Listener
from proxy.server.byte_budget import ByteBudget
from proxy.server.certificates import certificate_of
from proxy.server.choice import make_server
from proxy.server.dispatcher import SERVICE, Dispatcher
from proxy.server.entrance import Entrance
from proxy.server.health import SERVICE_NAME, Health
from proxy.server.protocol import Certificate, GrpcServer
from proxy.server.reflection import Reflection
from proxy.server.reserved_port import ReservedPort
from sprocket.common.descriptors import DescriptorReserve

_INSIDE: Final = ("127.0.0.1", 0)
PeerBehind = Callable[[tuple[str, int]], tuple[str, int]]


class Port:
    """Port of one listener; `listener` has its number once it is open."""

    def __init__(
        self,
        listener: Listener,
        config: ProxyConfig,
        dispatcher: Callable[[Callable[[], Listener], PeerBehind], Dispatcher],
        descriptors: DescriptorReserve,
        answers: ByteBudget,
    ) -> None:
        self.listener = listener
        self._config = config
        self._dispatcher = dispatcher
        self._answers = answers
        self._entrance = Entrance(descriptors) if config.tls_server_mode == "permissive" else None
        self._reserved: ReservedPort | None = None
        self._certificate: Certificate | None = None
        self._health = Health((SERVICE.full_name,))
        self._server: GrpcServer | None = None

    async def open(self, *, is_shared: bool) -> None:
        """Bind, without listening: connections are refused until `serve`.  Raises ConfigError.

        If the port is shared, other processes of the proxy bind it too, and the system spreads connections over them.
        Their supervisor has reserved it.
        """
        config = self._config
        self._certificate = None if config.tls_server_mode == "disabled" else certificate_of(config)
        number = self.listener.port
        if self._entrance is not None:
            number = await self._entrance.bind(config.bind_address, number, is_shared=is_shared)
        elif not is_shared:
            self._reserved = ReservedPort(config.bind_address, number)
            number = self._reserved.number
        self.listener = replace(self.listener, port=number)

    def _listen(self, *, is_shared: bool) -> GrpcServer:
        config, entrance = self._config, self._entrance
        if entrance is not None:
            # The ports inside belong to this process alone.
            server = self._make(entrance.peer_behind, is_shared=False)
            plain_port, tls_port = server.listen(*_INSIDE), server.listen(*_INSIDE, self._certificate)
            entrance.pass_to(plain_port=plain_port, tls_port=tls_port)
            return server
        server = self._make(lambda peer: peer, is_shared=is_shared)
        server.listen(config.bind_address, self.listener.port, self._certificate)
        return server

    def _make(self, peer_behind: PeerBehind, *, is_shared: bool) -> GrpcServer:
        dispatcher = self._dispatcher(lambda: self.listener, peer_behind)
        reflection = Reflection((SERVICE.full_name, SERVICE_NAME))
        handlers = {**dispatcher.handlers(), **self._health.handlers(), **reflection.handlers()}
        return make_server(handlers, self._config, self._answers, is_shared=is_shared)

    async def serve(self) -> None:
        """Serve calls.  Raises ConfigError if another process has begun to listen at the port."""
        self._server = self._listen(is_shared=self._reserved is None)
        await self._server.start()
        self._health.say_serving(True)
        if self._entrance is not None:
            await self._entrance.serve()

    def say_leaving(self) -> None:
        """Tell health checks that no more calls should come."""
        self._health.say_serving(False)

    async def stop(self) -> None:
        """Take no new calls; those under way have `GRACE_S` to end."""
        if self._server is not None:
            await self._server.stop()
        if self._entrance is not None:
            await self._entrance.close()
        if self._reserved is not None:
            self._reserved.close()
