"""One port that h2corn serves, with TLS or without.  An edge file: it binds sockets.

h2corn binds and listens in one step, reads certificates from files, and ends if a connection cannot be accepted.  So
the socket is made here and stays open, the certificate is in files in memory, and a server that ended serves again.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from h2corn import Config, Server

from proxy.config import GRPCIO, ProxyConfig
from proxy.server.protocol import GRACE_S, Certificate
from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError
from sprocket.common.everywhere import EVERYWHERE
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.serving.listening import reason_of

logger = logging.getLogger(__name__)

# Bytes of a call that may arrive before they are read, as with grpcio.
_STREAM_WINDOW_BYTES: Final = 65535
_MAX_WINDOW_BYTES: Final = 2**31 - 1
# Metadata up to so many times the limit gets a status of gRPC; above it HTTP's 431.
_METADATA_SLACK: Final = 4
_HANDSHAKE_S: Final = 30.0
_AGAIN_S: Final = 0.2
_MAX_BACKLOG: Final = 1024
_FRAME_BYTES: Final = 16_384

Application = Callable[[Any, Any, Any], Awaitable[None]]


class H2cornPort:
    """Port with `number` at which h2corn calls `application`.  Raises ConfigError if it cannot be bound."""

    def __init__(
        self,
        host: str,
        port: int,
        config: ProxyConfig,
        certificate: Certificate | None,
        application: Application,
        *,
        is_shared: bool,
    ) -> None:
        self._where = f"{host}:{port}"
        self._application = application
        self._opened = contextlib.ExitStack()
        try:
            self._socket = self._opened.enter_context(_bound(host, port, is_shared=is_shared))
        except OSError as error:
            raise self._cannot_listen(error) from None
        self.number = int(self._socket.getsockname()[1])
        self._config = _config(config, self._socket.fileno(), [self._in_memory(part) for part in certificate or ()])
        self._server: Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def _cannot_listen(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self._where} cannot be listened on: {reason_of(error)}. Choose another port")

    def _in_memory(self, content: bytes) -> Path:
        """Return the path of a file that is on no disk and gone with this process."""
        file = self._opened.enter_context(os.fdopen(os.memfd_create("certificate"), "wb"))
        file.write(content)
        file.flush()
        return Path(f"/proc/self/fd/{file.fileno()}")

    async def start(self) -> None:
        """Serve.  Raises ConfigError."""
        try:
            self._socket.listen(min(_MAX_BACKLOG, DescriptorReserve().burst))
        except OSError as error:
            raise self._cannot_listen(error) from None
        self._server = Server(self._application, self._config)
        self._serving = asyncio.get_running_loop().create_task(self._serve(self._server))
        try:
            await self._server.wait_started()
        except (ImportError, OSError, ValueError) as error:  # h2corn loads its compiled part only here
            self._server = None
            text = f"{self._where} cannot be served by h2corn: {error}. Mend this, or set grpcServer = {GRPCIO}"
            raise ConfigError(text) from None

    async def _serve(self, server: Server) -> None:
        while self._server is server:
            try:
                await server.serve()
            except Exception as error:
                peer_lines.error(logger, "", "event=h2corn_ended port=%d reason=%r", self.number, str(error))
            if self._server is server:
                await asyncio.sleep(_AGAIN_S)
            if self._server is server:  # `stop` may have come meanwhile
                self._server = server = Server(self._application, self._config)

    async def stop(self) -> None:
        """Take no new calls; those under way have `GRACE_S` to end."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
        if self._serving is not None:
            await self._serving
        self._opened.close()


def _bound(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """Return a socket that is bound and does not listen; for all addresses of IPv4 and IPv6 if `host` means them."""
    is_everywhere = host in EVERYWHERE
    has_both = is_everywhere and socket.has_dualstack_ipv6()
    if is_everywhere:
        host = "::" if has_both else "0.0.0.0"
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not has_both))
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def _config(config: ProxyConfig, descriptor: int, certificate: list[Path]) -> Config:
    """Return h2corn's settings for a port.  `certificate` has the files of chain and key."""
    certfile, keyfile = certificate or (None, None)
    streams, metadata_bytes = config.grpc_max_concurrent_streams, config.grpc_max_inbound_metadata_size
    ports = 1 + len(config.named_listeners)
    return Config(
        bind=(f"fd://{descriptor}",), certfile=certfile, keyfile=keyfile, grpc=True, http1=False, lifespan="off",
        access_log=False, date_header=False, runtime_threads=1,
        timeout_graceful_shutdown=GRACE_S, timeout_handshake=_HANDSHAKE_S,
        timeout_keep_alive=config.grpc_client_idle_time_mills / 1000,
        h2_timeout_response_stall=config.grpc_write_timeout_millis / 1000,
        limit_connections=(DescriptorReserve().room or 0) // ports, limit_request_fields=0,
        max_concurrent_streams=streams,
        h2_max_header_list_size=metadata_bytes * _METADATA_SLACK,
        h2_max_header_block_size=metadata_bytes * _METADATA_SLACK,
        h2_max_inbound_frame_size=_FRAME_BYTES,
        h2_initial_stream_window_size=_STREAM_WINDOW_BYTES,
        # As with grpcio, calls that are not read yet hold up no others of their connection.
        h2_initial_connection_window_size=min(_MAX_WINDOW_BYTES, streams * _STREAM_WINDOW_BYTES),
    )  # fmt: skip
