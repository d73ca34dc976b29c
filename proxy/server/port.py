"""One port of the proxy: a gRPC server, and the entrance before it where TLS and plain text come to the same port."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from proxy.config import ProxyConfig
from proxy.listeners import Listener
from proxy.server.certificates import server_credentials
from proxy.server.dispatcher import Dispatcher
from proxy.server.entrance import Entrance
from proxy.server.grpc_server import GrpcServer
from sprocket.remoting.flow.descriptors import DescriptorReserve

_INSIDE: Final = "127.0.0.1:0"
PeerBehind = Callable[[tuple[str, int]], tuple[str, int]]


class Port:
    """Port of one listener; `listener` has its number once it is open."""

    def __init__(
        self,
        listener: Listener,
        config: ProxyConfig,
        dispatcher: Callable[[Callable[[], Listener], PeerBehind], Dispatcher],
        descriptors: DescriptorReserve,
    ) -> None:
        self.listener = listener
        self._config = config
        self._dispatcher = dispatcher
        self._entrance = Entrance(descriptors) if config.tls_server_mode == "permissive" else None
        self._server: GrpcServer | None = None

    async def open(self) -> None:
        """Bind, without serving.  Raises ConfigError."""
        config = self._config
        mode = config.tls_server_mode
        credentials: Any = None if mode == "disabled" else server_credentials(config)
        if self._entrance is not None:
            number = await self._entrance.bind(config.bind_address, self.listener.port)
            self.listener = replace(self.listener, port=number)
            server = self._make(self._entrance.peer_behind)
            self._entrance.pass_to(plain_port=server.listen(_INSIDE), tls_port=server.listen(_INSIDE, credentials))
            return
        server = self._make(lambda peer: peer)
        host = f"[{config.bind_address}]" if ":" in config.bind_address else config.bind_address
        number = server.listen(f"{host}:{self.listener.port}", credentials)
        self.listener = replace(self.listener, port=number)

    def _make(self, peer_behind: PeerBehind) -> GrpcServer:
        self._server = GrpcServer(self._dispatcher(lambda: self.listener, peer_behind), self._config)
        return self._server

    async def serve(self) -> None:
        """Serve calls."""
        assert self._server is not None
        await self._server.start()
        await self._server.say_serving(True)
        if self._entrance is not None:
            await self._entrance.serve()

    async def say_leaving(self) -> None:
        """Tell health checks that no more calls should come."""
        assert self._server is not None
        await self._server.say_serving(False)

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; those under way have `grace_s` to end."""
        if self._server is not None:
            await self._server.stop(grace_s)
        if self._entrance is not None:
            await self._entrance.close()
