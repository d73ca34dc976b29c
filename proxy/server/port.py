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
from proxy.server.reserved_port import ReservedPort
from sprocket.common.descriptors import DescriptorReserve

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
        self._reserved: ReservedPort | None = None
        self._credentials: Any = None
        self._server: GrpcServer | None = None

    async def open(self, *, is_shared: bool) -> None:
        """Bind, without listening: connections are refused until `serve`.  Raises ConfigError.

        If the port is shared, other processes of the proxy bind it too, and the system spreads connections over them.
        Their supervisor has reserved it.
        """
        config = self._config
        self._credentials = None if config.tls_server_mode == "disabled" else server_credentials(config)
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
            entrance.pass_to(plain_port=server.listen(_INSIDE), tls_port=server.listen(_INSIDE, self._credentials))
            return server
        server = self._make(lambda peer: peer, is_shared=is_shared)
        host = f"[{config.bind_address}]" if ":" in config.bind_address else config.bind_address
        server.listen(f"{host}:{self.listener.port}", self._credentials)
        return server

    def _make(self, peer_behind: PeerBehind, *, is_shared: bool) -> GrpcServer:
        dispatcher = self._dispatcher(lambda: self.listener, peer_behind)
        return GrpcServer(dispatcher, self._config, is_shared=is_shared)

    async def serve(self) -> None:
        """Serve calls.  Raises ConfigError if another process has begun to listen at the port."""
        self._server = self._listen(is_shared=self._reserved is None)
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
        if self._reserved is not None:
            self._reserved.close()
