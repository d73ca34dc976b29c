"""gRPC server of one listener, by grpcio.

Source of the limits: RocketMQ 5.3.3, `GrpcServerBuilder`.
"""

import asyncio
from typing import Any, Final

import grpc

from proxy.config import ProxyConfig
from proxy.server.byte_budget import ByteBudget
from proxy.server.protocol import GRACE_S, Aborted, Certificate, Handler, Handlers, NotTaken, Unread
from sprocket.common.errors import ConfigError

# Clients may ping this often.
_PING_INTERVAL_MS: Final = 10_000
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


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


class _Generic(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio brings no types
    """All methods, found by name alone.

    grpcio waits for the next call of each registered method with a future of its own, and looks at all these futures
    at every call.
    """

    def __init__(self, handlers: Handlers, answers: ByteBudget) -> None:
        self._handlers = {path: _adapted(handler, answers) for path, handler in handlers.items()}

    def service(self, handler_call_details: Any) -> Any:
        """Return grpcio's handler of a method; None if there is none."""
        return self._handlers.get(handler_call_details.method)


class _Stream:
    """See `Stream`.  A write waits until the client reads, so `not_taken` is never called."""

    def __init__(self, context: Any, answers: ByteBudget) -> None:
        self.peer, self.invocation_metadata = context.peer, context.invocation_metadata
        self.time_remaining, self.read, self.write = context.time_remaining, context.read, context.write
        self._answers = answers
        self._held_bytes = 0

    def check_room(self) -> None:
        self._answers.check_room(self.peer())

    def hold(self, size: int, not_taken: NotTaken | None = None) -> None:
        self._answers.take(self.peer(), size)
        self._held_bytes += size

    def ended(self) -> None:
        """Give back what is held."""
        if self._held_bytes:
            self._answers.give_back(self.peer(), self._held_bytes)


def _adapted(handler: Handler, answers: ByteBudget) -> Any:
    # gRPC gets no decoder of requests, so a request is a stream of bytes to it, which the handler reads.
    async def serve(_: Any, context: Any) -> bytes | None:
        try:
            if handler.is_unary:
                return await handler.serve(context)
            stream = _Stream(context, answers)
            try:
                await handler.serve(stream)
            finally:
                stream.ended()
        except Aborted as aborted:
            await context.abort(_CODES[aborted.code], aborted.text)
        except Unread:
            await _ended(context)
        return None

    if handler.is_unary:
        return grpc.stream_unary_rpc_method_handler(serve)
    return grpc.stream_stream_rpc_method_handler(serve)


async def _ended(context: Any) -> None:
    """Wait for the end of a call that is not read: gRPC cannot send its status before the part that it holds."""
    ended = asyncio.Event()
    context.add_done_callback(lambda _: ended.set())
    await ended.wait()


class GrpcioServer:
    """See `GrpcServer`."""

    def __init__(self, handlers: Handlers, config: ProxyConfig, answers: ByteBudget, *, is_shared: bool) -> None:
        self._server = grpc.aio.server(options=options(config, is_shared=is_shared))
        self._server.add_generic_rpc_handlers((_Generic(handlers, answers),))

    def listen(self, host: str, port: int, certificate: Certificate | None = None) -> int:
        """Bind a port, with TLS if there is a certificate.  Return its number.  Raises ConfigError."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if certificate is None:
                number = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials([(certificate.key, certificate.chain)])
                number = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            number = 0
        if not number:
            raise ConfigError(f"{address} cannot be listened on: another process has the port, or there is no address")
        return int(number)

    async def start(self) -> None:
        """Serve."""
        await self._server.start()

    async def stop(self) -> None:
        """Take no new calls; those under way have `GRACE_S` to end."""
        await self._server.stop(GRACE_S)
