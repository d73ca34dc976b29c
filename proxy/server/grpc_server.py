"""gRPC server of one listener: options, health checking and reflection.

Source of the limits: RocketMQ 5.3.3, `GrpcServerBuilder`.
"""

from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from proxy.config import ProxyConfig
from proxy.server.dispatcher import SERVICE, Dispatcher
from sprocket.common.errors import ConfigError

# Clients may ping this often.
_PING_INTERVAL_MS: Final = 10_000


def options(config: ProxyConfig, *, is_shared: bool = False) -> list[tuple[str, Any]]:
    """Return gRPC's options for `config`.  If ports are shared, other processes of the proxy bind them too."""
    metadata_size = config.grpc_max_inbound_metadata_size
    return [
        ("grpc.max_receive_message_length", config.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        # Above the first limit calls are refused at random, above the second always.
        ("grpc.max_metadata_size", metadata_size),
        ("grpc.absolute_max_metadata_size", metadata_size),
        ("grpc.max_concurrent_streams", config.grpc_max_concurrent_streams),
        ("grpc.max_connection_idle_ms", config.grpc_client_idle_time_mills),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_INTERVAL_MS),
        ("grpc.so_reuseport", int(is_shared)),
    ]


class _Generic:
    """Server that gets the handlers of services by name alone.

    grpcio waits for the next call of each registered method with a future of its own, and looks at all these futures
    at every call.  Methods of health checking and reflection would slow down every other call.
    """

    def __init__(self, server: Any) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Do nothing: the generic handler of `service` has the same methods."""


class GrpcServer:
    """gRPC server for the calls of one listener.  It is created inside a running event loop."""

    def __init__(self, dispatcher: Dispatcher, config: ProxyConfig, *, is_shared: bool) -> None:
        self._server = grpc.aio.server(options=options(config, is_shared=is_shared))
        handlers = grpc.method_handlers_generic_handler(SERVICE.full_name, dispatcher.handlers())
        self._server.add_generic_rpc_handlers((handlers,))
        services = _Generic(self._server)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, services)
        names = (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, services)

    def listen(self, address: str, credentials: Any = None) -> int:
        """Bind `address`, with TLS if there are `credentials`.  Return the port.  Raises ConfigError."""
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if not port:
            raise ConfigError(f"{address} cannot be listened on: another process has the port, or there is no address")
        return int(port)

    async def start(self) -> None:
        """Serve."""
        await self._server.start()

    async def say_serving(self, is_serving: bool) -> None:
        """Tell health checks whether calls are served."""
        found = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", SERVICE.full_name):
            await self._health.set(name, found)

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; those under way have `grace_s` to end."""
        await self._server.stop(grace_s)
