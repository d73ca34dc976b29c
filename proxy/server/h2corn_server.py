"""gRPC server of one listener, by h2corn, whose HTTP/2 is in Rust.  docs/proxy.md says what differs from grpcio."""

import asyncio
import logging
from typing import Any

from proxy.config import ProxyConfig
from proxy.server.byte_budget import ByteBudget
from proxy.server.h2corn_exchange import H2cornExchange, Limits, NotGrpc, Receive, Send, framed
from proxy.server.h2corn_port import H2cornPort
from proxy.server.protocol import Aborted, Certificate, Handler, Handlers, StatusCode, Unread
from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)


class H2cornServer:
    """See `GrpcServer`."""

    def __init__(self, handlers: Handlers, config: ProxyConfig, answers: ByteBudget, *, is_shared: bool) -> None:
        self._handlers = handlers
        self._config = config
        self._is_shared = is_shared
        write_s = config.grpc_write_timeout_millis / 1000
        self._limits = Limits(config.max_request_bytes, config.grpc_max_inbound_metadata_size, write_s, answers)
        self._ports: list[H2cornPort] = []

    def listen(self, host: str, port: int, certificate: Certificate | None = None) -> int:
        """Bind a port, with TLS if there is a certificate.  Return its number.  Raises ConfigError."""
        made = H2cornPort(host, port, self._config, certificate, self._serve, is_shared=self._is_shared)
        self._ports.append(made)
        return made.number

    async def start(self) -> None:
        """Serve.  Raises ConfigError."""
        for port in self._ports:
            await port.start()

    async def stop(self) -> None:
        """Take no new calls; those under way have `GRACE_S` to end."""
        await asyncio.gather(*(port.stop() for port in self._ports))

    async def _serve(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request.  Source: ASGI, `specs/www.rst`."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        exchange = H2cornExchange(scope, receive, send, self._limits)
        try:
            exchange.read_head(scope)
            handler = self._handlers.get(scope["path"])
            # It takes 2 KiB, and a stream may be open for days.
            del scope, receive, send
            await self._answer(exchange, handler)
        except NotGrpc:
            await exchange.refuse_http()
        except Aborted as aborted:
            await exchange.end(aborted)
        except Unread:
            await exchange.ended()
        except TimeoutError:
            await exchange.end(Aborted(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))
        except asyncio.CancelledError:
            if exchange.fault is None:
                raise
            await exchange.end(exchange.fault)
        except Exception as error:
            peer_lines.error(logger, exchange.peer(), "event=call_failed reason=%r", str(error), exc_info=error)
            await exchange.end(Aborted(StatusCode.UNKNOWN, "the proxy failed"))

    async def _answer(self, exchange: H2cornExchange, handler: Handler | None) -> None:
        if handler is None:
            raise Aborted(StatusCode.UNIMPLEMENTED, "Method not found!")
        if exchange.deadline is None:
            await _run(handler, exchange)
        else:
            async with asyncio.timeout_at(exchange.deadline):
                await _run(handler, exchange)


async def _run(handler: Handler, exchange: H2cornExchange) -> None:
    if handler.is_unary:
        # No second copy stays here while the answer waits for the client.
        await exchange.answer(framed(await handler.serve(exchange)))
        return
    is_taken = False
    try:
        await handler.serve(exchange)
        exchange.release()
        await exchange.end()
        if exchange.not_taken is not None:
            await exchange.taken()
        is_taken = True
    finally:
        exchange.release()
        if exchange.not_taken is not None and not is_taken:
            exchange.not_taken()
