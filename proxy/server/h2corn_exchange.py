"""One gRPC call over ASGI, as h2corn serves it: messages in the body, the status in the trailers.

Source of the format: gRPC, `doc/PROTOCOL-HTTP2.md`.
"""

import asyncio
import binascii
import zlib
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote

from proxy.server.byte_budget import ByteBudget
from proxy.server.protocol import Aborted, NotTaken, StatusCode
from proxy.status import Refusal

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_CONTENT_TYPE: Final = "application/grpc"
_HEAD_BYTES: Final = 5
_IDENTITY, _GZIP, _DEFLATE = "identity", "gzip", "deflate"
# `wbits` of zlib.
_FORMATS: Final = {_GZIP: 31, _DEFLATE: 15}
_ENCODINGS: Final = f"{_IDENTITY}, {_DEFLATE}, {_GZIP}".encode()
_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_TIMEOUT_DIGITS: Final = 8
# What a text of a status may have as it is: all that can be printed, without %.
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_MAX_TEXT_CHARS: Final = 1024
# HTTP/2 counts so much for each field of a header.
_FIELD_BYTES: Final = 32
_UNSUPPORTED_MEDIA_TYPE: Final = 415
_CANCEL_S: Final = 5.0
# Answers that took longer may have been reset; then h2corn cancels the task within this time.
_QUICK_S: Final = 0.05
_RESET_S: Final = 0.02
_MAPPED: Final = "::ffff:"
# Smaller answers are not counted: the calls of a connection are limited, and each waits with one message.
_UNCOUNTED_BYTES: Final = 4096

_START: Final = {
    "type": "http.response.start", "status": 200, "trailers": True,
    "headers": [(b"content-type", _CONTENT_TYPE.encode()), (b"grpc-accept-encoding", _ENCODINGS)],
}  # fmt: skip
_TRAILERS: Final = "http.response.trailers"
_NO_MORE: Final = {"type": "http.response.body", "body": b""}
_OK: Final = {"type": _TRAILERS, "headers": [(b"grpc-status", b"0")]}


class Limits(NamedTuple):
    """Limits of a call."""

    message_bytes: int
    metadata_bytes: int
    write_s: float
    answers: ByteBudget


class NotGrpc(Exception):
    """A request is HTTP, and no call of gRPC."""


class H2cornExchange:
    """See `Stream`.  `deadline` is the loop's time at which the client's deadline passes.

    A request that breaks a rule sets `fault`, and its handler sees the call as one whose client has gone.
    """

    __slots__ = (
        "_began_s", "_buffer", "_client", "_has_more", "_held_bytes", "_is_ended", "_is_started", "_limits",
        "_metadata", "_receive", "_send", "deadline", "encoding", "fault", "not_taken",
    )  # fmt: skip

    def __init__(self, scope: Any, receive: Receive, send: Send, limits: Limits) -> None:
        self._client, self._receive, self._send, self._limits = scope["client"], receive, send, limits
        self._buffer = bytearray()
        self._has_more, self._is_started, self._is_ended = True, False, False
        self._began_s = 0.0
        self._held_bytes = 0
        self._metadata: dict[str, Any] = {}
        self.deadline: float | None = None
        self.encoding = _IDENTITY
        self.fault: Aborted | None = None
        self.not_taken: NotTaken | None = None

    def read_head(self, scope: Any) -> None:
        """Read the metadata.  Raises NotGrpc, and Aborted if it breaks a rule."""
        size_bytes, is_grpc = 0, False
        for raw_name, raw_value in scope["headers"]:
            size_bytes += len(raw_name) + len(raw_value) + _FIELD_BYTES
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name == "content-type":
                is_grpc = value.startswith(_CONTENT_TYPE)
            elif name == "grpc-timeout":
                self.deadline = asyncio.get_running_loop().time() + _timeout_s(value)
            elif name == "grpc-encoding":
                self.encoding = value
            self._metadata[name] = _binary(raw_value) if name.endswith("-bin") else value
        # h2corn sends trailers only if the request says "te: trailers", as gRPC demands.
        if not is_grpc or scope["method"] != "POST" or _TRAILERS not in scope["extensions"]:
            raise NotGrpc
        max_bytes = self._limits.metadata_bytes
        if size_bytes > max_bytes:
            raise Aborted(StatusCode.RESOURCE_EXHAUSTED, f"the metadata has {size_bytes} bytes, at most {max_bytes}")

    def peer(self) -> str:
        """Return the client's address."""
        host, port = self._client
        host = host.removeprefix(_MAPPED)
        return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def invocation_metadata(self) -> dict[str, Any]:
        """Return values by name; of a name that comes twice the last one."""
        return self._metadata

    def time_remaining(self) -> float | None:
        """Return the time to the client's deadline, in s."""
        return None if self.deadline is None else self.deadline - asyncio.get_running_loop().time()

    async def read(self) -> Any:
        """Return the next message, or None if the client has sent its last."""
        buffer, limit = self._buffer, self._limits.message_bytes
        while True:
            if len(buffer) >= _HEAD_BYTES:
                size = int.from_bytes(buffer[1:_HEAD_BYTES], "big")
                if size > limit:
                    self._refuse(StatusCode.RESOURCE_EXHAUSTED, _too_large(size, limit))
                end = _HEAD_BYTES + size
                if len(buffer) >= end:
                    message, flag = bytes(memoryview(buffer)[_HEAD_BYTES:end]), buffer[0]
                    del buffer[:end]
                    return message if not flag else await self._decompressed(message, flag)
            if not self._has_more:
                if buffer:
                    self._refuse(StatusCode.INTERNAL, "the request ended within a message")
                return None
            event = await self._receive()
            if event["type"] != "http.request":
                await _cancelled()
            buffer += event.get("body", b"")
            self._has_more = event.get("more_body", False)

    async def _decompressed(self, message: bytes, flag: int) -> bytes:
        if flag != 1 or self.encoding == _IDENTITY:
            self._refuse(StatusCode.INTERNAL, "a message says that it is compressed, and no grpc-encoding says how")
        if self.encoding not in _FORMATS:
            self._refuse(StatusCode.UNIMPLEMENTED, f"grpc-encoding {self.encoding!r} is not supported")
        limit = self._limits.message_bytes
        # Elsewhere: a few bytes can become a message of the largest size.
        found = await asyncio.to_thread(_inflated, message, _FORMATS[self.encoding], limit)
        if found is None:
            self._refuse(StatusCode.INTERNAL, f"a message is not {self.encoding}")
        if len(found) > limit:
            self._refuse(StatusCode.RESOURCE_EXHAUSTED, _too_large(len(found), limit))
        return found

    def _refuse(self, code: StatusCode, text: str) -> NoReturn:
        self.fault = Aborted(code, text)
        raise asyncio.CancelledError

    def check_room(self) -> None:
        """See `Stream`."""
        self._limits.answers.check_room(self._client)

    def hold(self, size: int, not_taken: NotTaken | None = None) -> None:
        """See `Stream`."""
        self._limits.answers.take(self._client, size)
        self._held_bytes += size
        self.not_taken = not_taken

    def release(self) -> None:
        """Give back what is held."""
        if self._held_bytes:
            self._limits.answers.give_back(self._client, self._held_bytes)
            self._held_bytes = 0

    async def write(self, message: bytes) -> None:
        """Send a message.  It waits while the connection has 2 MiB of answers that are not sent (h2corn's limit)."""
        await self._say_started()
        event = {"type": "http.response.body", "body": framed(message), "more_body": True}
        del message  # it may wait for the client as it is sent
        await self._say_body(event, None)

    async def answer(self, framed_message: bytes) -> None:
        """Send the one message of a unary call, and end the call."""
        self._is_ended = True
        await self._say_started()
        await self._say_body({"type": "http.response.body", "body": framed_message}, self._limits.write_s)
        await self._say(_OK)

    async def end(self, aborted: Aborted | None = None) -> None:
        """End the call, unless it has ended; with OK, unless it is aborted."""
        if self._is_ended:
            return
        self._is_ended = True
        await self._say_started()
        await self._say(_NO_MORE)
        await self._say(_OK if aborted is None else _trailers(aborted))

    async def ended(self) -> None:
        """Wait until all has left that was written, or the client has gone, or h2corn has reset the unread stream."""
        while (await self._receive())["type"] == "http.request":
            pass

    async def taken(self) -> None:
        """Wait as `ended`, for an answer that the client takes.  If it does not, the task is cancelled.

        h2corn says in the same way that it has sent all, and that it has reset the stream.  But then it cancels the
        task, within 1 ms.
        """
        await self.ended()
        if asyncio.get_running_loop().time() - self._began_s > _QUICK_S:
            await asyncio.sleep(_RESET_S)

    async def refuse_http(self) -> None:
        """Answer what is no call of gRPC."""
        await self._say({"type": "http.response.start", "status": _UNSUPPORTED_MEDIA_TYPE})
        await self._say(_NO_MORE)

    async def _say_started(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._began_s = asyncio.get_running_loop().time()
            await self._say(_START)

    async def _say_body(self, event: Any, limit_s: float | None) -> None:
        """Send a message.  Raises Aborted if it may not wait for the client, or not longer."""
        answers = self._limits.answers
        size = len(event["body"])
        # What is held is counted already.
        size = max(0, size - self._held_bytes) if size > _UNCOUNTED_BYTES else 0
        try:
            answers.take(self._client, size)
        except Refusal as refused:
            self._is_ended = False
            raise Aborted(StatusCode.RESOURCE_EXHAUSTED, refused.message) from None
        try:
            sending = self._send(event)
            if asyncio.isfuture(sending):
                await self._wait(sending, limit_s)
            else:
                await sending
        except OSError:  # the client has gone
            await _cancelled()
        finally:
            answers.give_back(self._client, size)

    async def _wait(self, sending: "asyncio.Future[None]", limit_s: float | None) -> None:
        """Wait until h2corn takes a message: it has too much for the connection."""
        try:
            async with asyncio.timeout(limit_s):
                await sending
        except TimeoutError:
            if sending.cancelled():
                raise Aborted(StatusCode.RESOURCE_EXHAUSTED, "the client does not read the answer") from None
        finally:
            if sending.cancelled():
                self._is_ended = False

    async def _say(self, event: Any) -> None:
        try:
            await self._send(event)
        except OSError:  # the client has gone
            await _cancelled()


async def _cancelled() -> NoReturn:
    """Wait for h2corn to cancel the task of a client that has gone.  It logs a line for a task that ends before."""
    await asyncio.sleep(_CANCEL_S)
    raise asyncio.CancelledError


def framed(message: bytes | None) -> bytes:
    """Return a message of gRPC with its head."""
    assert message is not None
    return b"\0" + len(message).to_bytes(4, "big") + message


def _trailers(aborted: Aborted) -> Any:
    headers = [(b"grpc-status", b"%d" % aborted.code)]
    if aborted.text:
        headers.append((b"grpc-message", quote(aborted.text[:_MAX_TEXT_CHARS], safe=_PLAIN).encode()))
    return {"type": _TRAILERS, "headers": headers}


def _timeout_s(text: str) -> float:
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MAX_TIMEOUT_DIGITS or unit not in _SECONDS:
        raise Aborted(StatusCode.INTERNAL, "grpc-timeout cannot be read")
    return int(digits) * _SECONDS[unit]


def _binary(raw: bytes) -> bytes:
    try:
        return b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except binascii.Error:
        raise Aborted(StatusCode.INTERNAL, "metadata whose name ends with -bin is not base64") from None


def _inflated(message: bytes, wbits: int, limit: int) -> bytes | None:
    """Return at most `limit` + 1 bytes; None for what cannot be read."""
    inflater = zlib.decompressobj(wbits)
    try:
        found = inflater.decompress(message, limit + 1)
    except zlib.error:
        return None
    return found if inflater.eof or len(found) > limit else None


def _too_large(size: int, limit: int) -> str:
    return f"Received message larger than max ({size} vs. {limit})"
