"""The gRPC server that `grpcServer` names.  Each is imported only if it is chosen."""

from importlib.util import find_spec

from proxy.config import AUTO, GRPCIO, H2CORN, ProxyConfig
from proxy.server.byte_budget import ByteBudget
from proxy.server.protocol import GrpcServer, Handlers
from sprocket.common.errors import ConfigError
from sprocket.common.extras import EXTRA_OF, install


def chosen(config: ProxyConfig) -> str:
    """Return the name of the server; `auto` means h2corn where it is installed, grpcio elsewhere."""
    if config.grpc_server != AUTO:
        return config.grpc_server
    return GRPCIO if find_spec(H2CORN) is None else H2CORN


def make_server(handlers: Handlers, config: ProxyConfig, answers: ByteBudget, *, is_shared: bool) -> GrpcServer:
    """Return the server of one listener.  If ports are shared, other processes of the proxy bind them too.

    `answers` counts the bytes of answers that wait for their clients, of all listeners.

    Raises ConfigError if the server is not installed, or cannot be loaded.
    """
    if chosen(config) == H2CORN:
        try:
            from proxy.server.h2corn_server import H2cornServer
        except ImportError as error:
            if (error.name or "").partition(".")[0] != H2CORN:
                raise
            raise ConfigError(
                f"{H2CORN} cannot be loaded: {error}. Install it with {install(EXTRA_OF[H2CORN])}, "
                f"or set grpcServer = {GRPCIO}"
            ) from None
        return H2cornServer(handlers, config, answers, is_shared=is_shared)
    from proxy.server.grpcio_server import GrpcioServer

    return GrpcioServer(handlers, config, answers, is_shared=is_shared)
