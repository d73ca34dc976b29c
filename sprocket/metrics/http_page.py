"""Pages of text over HTTP/1.1: just enough for Prometheus, probes and curl, with limits on all that a peer can do.

One request for each connection, which is closed after the response.
"""

import asyncio
import contextlib
import gzip
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final

from sprocket.common.descriptors import DescriptorReserve
from sprocket.common.errors import ConfigError
from sprocket.common.everywhere import EVERYWHERE
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.metrics.http_connections import HttpConnections

logger = logging.getLogger(__name__)

_MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_CONNECTIONS: Final = 64
# Limits on the head of a request, and on its response.
_HEAD_LIMIT_S: Final = 5.0
_ANSWER_LIMIT_S: Final = 30.0
_PATHS: Final = (b"/", b"/metrics")
_HEALTH: Final = b"/-/healthy"


def page_host(wanted: str, bind_address: str) -> str:
    """Return the address of a page without access control: `wanted`, else the server's own, but never all addresses.

    Where the server listens on all addresses, the page is for this machine alone, unless `wanted` says otherwise.
    """
    own = "127.0.0.1" if bind_address.strip() in EVERYWHERE else bind_address
    return wanted.strip() or own


class HttpServer(ABC):
    """Server of small pages; what it serves is up to `respond`.

    `what` names the pages in messages.  `keys` are the settings that an error names, address and port.
    """

    def __init__(self, what: str, host: str, port: int, keys: tuple[str, str]) -> None:
        self._what = what
        self._host = host
        self._requested_port = port
        self._keys = keys
        self._server: asyncio.Server | None = None
        self._connections = HttpConnections(_MAX_CONNECTIONS, _HEAD_LIMIT_S, _ANSWER_LIMIT_S)

    @property
    def port(self) -> int:
        """The port; the one that the system chose if 0 was asked for."""
        assert self._server is not None, "the page is not bound"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def bind(self) -> None:
        """Bind the port without serving it.  Raises ConfigError."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: self._connections.protocol(self._reader), self._host, self._requested_port,
                start_serving=False, backlog=min(_MAX_CONNECTIONS, DescriptorReserve().burst),
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self._host}:{self._requested_port} for {self._what}: {error.strerror}. "
                f"Change {self._keys[0]} or {self._keys[1]}."
            ) from None

    async def start(self) -> None:
        """Serve; binds first if `bind` was not called.  Raises ConfigError."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        await self._server.start_serving()
        logger.info("event=page_served page=%s host=%s port=%d", self._what, self._host, self.port)

    def close(self) -> None:
        """Serve no longer."""
        if self._server is not None:
            self._server.close()

    def _reader(self) -> asyncio.Protocol:
        loop = asyncio.get_running_loop()
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(_MAX_HEAD_BYTES, loop), self._serve, loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            with self._connections.answering(writer.transport):
                async with asyncio.timeout(_ANSWER_LIMIT_S):
                    writer.write(await self._response(head))
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer is gone, too slow, or speaks no HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _response(self, head: bytes) -> bytes:
        request, _, fields = head.partition(b"\r\n")
        words = request.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return message(b"400 Bad Request", "this is no HTTP request\n")
        method, path = words[0], words[1].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return message(b"405 Method Not Allowed", "only GET and HEAD are served\n")
        return await self.respond(path, fields, with_body=method == b"GET")

    @abstractmethod
    async def respond(self, path: bytes, fields: bytes, *, with_body: bool) -> bytes:
        """Return the response to a GET of `path`, or to a HEAD without its body; `fields` are the header's lines."""


class HttpPage(HttpServer):
    """Server of one page at ``/`` and ``/metrics``; ``/-/healthy`` responds without reading it.

    `read` returns the page.
    """

    def __init__(
        self, read: Callable[[], Awaitable[bytes]], content_type: str, host: str, port: int, keys: tuple[str, str]
    ) -> None:
        super().__init__("metrics", host, port, keys)
        self._read = read
        self._content_type = content_type

    async def respond(self, path: bytes, fields: bytes, *, with_body: bool) -> bytes:
        if path not in (*_PATHS, _HEALTH):
            return message(b"404 Not Found", "the metrics are at /metrics\n")
        if path == _HEALTH:
            return message(b"200 OK", "the server runs\n")
        try:
            body = await self._read()
        except Exception as error:
            peer_lines.error(logger, "", "event=metrics_not_read", exc_info=error)
            return message(b"500 Internal Server Error", "the metrics cannot be read; see the server's log\n")
        more = f"Content-Type: {self._content_type}\r\n"
        if _accepts_gzip(fields):
            body = await asyncio.to_thread(gzip.compress, body, 1)
            more += "Content-Encoding: gzip\r\n"
        return _framed(b"200 OK", more, body, with_body=with_body)


def _accepts_gzip(fields: bytes) -> bool:
    for line in fields.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"accept-encoding":
            return any(one.strip().partition(b";")[0] == b"gzip" for one in value.split(b","))
    return False


def message(
    status: bytes, text: str, *, content_type: str = "text/plain; charset=utf-8", with_body: bool = True
) -> bytes:
    """Return a response with a short text."""
    return _framed(status, f"Content-Type: {content_type}\r\n", text.encode(), with_body=with_body)


def _framed(status: bytes, fields: str, body: bytes, *, with_body: bool) -> bytes:
    head = b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, fields.encode(), len(body))
    return head + body if with_body else head
