"""The gRPC server that `grpcServer` names.  Each is imported only if it is chosen."""

from proxy.config import H2CORN, ProxyConfig
from proxy.server.protocol import GrpcServer, Handlers
from sprocket.common.errors import ConfigError
from sprocket.common.extras import install


def make_server(handlers: Handlers, config: ProxyConfig, *, is_shared: bool) -> GrpcServer:
    """Return the server of one listener.  If ports are shared, other processes of the proxy bind them too.

    Raises ConfigError if the server is not installed.
    """
    if config.grpc_server == H2CORN:
        try:
            from proxy.server.h2corn_server import H2cornServer
        except ModuleNotFoundError as error:
            if error.name != H2CORN:
                raise
            raise ConfigError(
                f"grpcServer = {H2CORN} needs h2corn, which is not installed: {install(H2CORN)}"
            ) from None
        return H2cornServer(handlers, config, is_shared=is_shared)
    from proxy.server.grpcio_server import GrpcioServer

    return GrpcioServer(handlers, config, is_shared=is_shared)
