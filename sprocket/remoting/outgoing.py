"""What one connection sends: responses and requests, gathered to one write in each turn of the loop."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from sprocket.common import limits
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import FLAG_ONEWAY, Buffer, ReceivedResponse, Request
from sprocket.remoting.credentials import SIGNED_WITH, Credentials
from sprocket.remoting.flow.connection import Connection
from sprocket.remoting.flow.joined_buffers import write_buffers
from sprocket.remoting.flow.unsent_output import COUNTED_BYTES, UnsentOutput
from sprocket.remoting.frames import NotEncodable, as_body, encode_forwarded, encode_request
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.base import Header, to_ext_fields
from sprocket.remoting.pending import PendingRequests, Waiter


class Outgoing(Connection, asyncio.Protocol):
    """The outgoing half of `RemotingChannel`."""

    def __init__(
        self, counters: ChannelCounters, on_crowded: Callable[[], None] | None, credentials: Credentials | None
    ) -> None:
        self.peer: tuple[str, int] = ("", 0)
        self.is_closed = False
        self.stalled_at: float | None = None  # loop time at which the peer stopped reading
        self.unsent = UnsentOutput(counters, on_crowded)
        self._counters = counters
        self._credentials = credentials
        self._drained: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending = PendingRequests(self._loop)
        self.next_opaque = self._pending.next_opaque  # the opaque number for a request that `request_encoded` sends
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._reading = self._flush_scheduled = False
        self._is_slow = False  # whether all frames of the peer wait, because it sends more than it may

    def abort(self, reason: str) -> None:
        """Close at once and drop unsent output."""
        raise NotImplementedError

    def write(self, *buffers: Buffer) -> None:
        """Queue whole frames for sending.  After close this does nothing."""
        if self.is_closed:
            return
        self._out += buffers
        self._out_bytes += len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if not self._reading and not self._flush_scheduled:
            # All writes of this turn of the loop leave in one system call.
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        out, size = self._out, self._out_bytes
        transport = self._transport
        if not out or transport is None or self.is_closed:
            return
        self._out, self._out_bytes = [], 0
        left = transport.get_write_buffer_size()
        write_buffers(transport, out, size)
        is_counted = left + size > COUNTED_BYTES
        if is_counted and transport.get_write_buffer_size() > limits.WRITE_CLOSE_BYTES:
            self.abort("unsent_limit")
        elif is_counted:
            self.unsent.written(left, size, self._loop.time())

    async def drained(self) -> None:
        """Wait until the peer has taken enough of its queued output.  Returns at once if the connection is closed."""
        if self.stalled_at is None or self.is_closed:
            return
        if self._drained is None:
            self._drained = self._loop.create_future()
        await asyncio.shield(self._drained)

    def _end_drain(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    # Requests of our own

    def notify(self, code: int, header: Header | Mapping[str, str] | None = None, body: Buffer = b"") -> None:
        """Send a oneway request.  Raises NotEncodable."""
        # Encode all of it before any of it is queued, so that a request that cannot be encoded harms no other.
        body = body if type(body) is bytes else as_body(body)
        header = self._signed(header, body)
        prefix = encode_request(RequestCode(code), self._pending.next_opaque(), header, len(body), oneway=True)
        self.write(prefix, body)

    def request(
        self,
        code: int,
        header: Header | Mapping[str, str] | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float,
        serialization: int = JSON,
    ) -> "asyncio.Future[ReceivedResponse]":
        """Send a request; the future gets its response, or RemotingTimeout or ConnectionLost.  Raises NotEncodable."""
        future: asyncio.Future[ReceivedResponse] = self._loop.create_future()
        self.request_for(future, code, header, body, timeout_s=timeout_s, serialization=serialization)
        return future

    def request_for(
        self,
        waiter: Waiter,
        code: int,
        header: Header | Mapping[str, str] | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float,
        serialization: int = JSON,
    ) -> None:
        """Do as `request`, for any `waiter`."""
        body = body if type(body) is bytes else as_body(body)
        header = self._signed(header, body)
        opaque = self._pending.next_opaque()
        prefix = encode_request(code, opaque, header, len(body), serialization=serialization)
        self.request_encoded(waiter, code, opaque, prefix, body, timeout_s)

    @property
    def has_waiting(self) -> bool:
        """Whether a request of our own still waits for its response."""
        return bool(self._pending.waiting)

    @property
    def is_signing(self) -> bool:
        """Whether requests are signed, so that `request` must encode them."""
        return self._credentials is not None

    def request_encoded(
        self, waiter: Waiter, code: int, opaque: int, prefix: bytes, body: Buffer, timeout_s: float
    ) -> None:
        """Send a request whose header is encoded in `prefix`, as `request_for`."""
        pending = self._pending
        pending.register(waiter, opaque, timeout_s, code)
        if self.is_closed:
            pending.fail_all(f"{self.peer[0]}:{self.peer[1]} closed the connection")
            return
        size = len(body)
        self._out.append(prefix)
        if size:
            self._out.append(body)
        self._out_bytes += len(prefix) + size
        if not self._reading and not self._flush_scheduled:
            if len(pending.waiting) == 1:
                # Nothing else is outstanding, so there is nothing to gather: spare a turn of the loop.
                self._flush()
            else:
                self._flush_scheduled = True
                self._loop.call_soon(self._flush)

    def forward(
        self, request: Request[Any], fields: Mapping[str, str], *, timeout_s: float
    ) -> "asyncio.Future[ReceivedResponse] | None":
        """Send a request of another connection with these fields and its own body; None if it is oneway.

        The future is that of `request`.  With credentials the signature becomes this end's.  Raises NotEncodable.
        """
        body = request.body
        if self._credentials is not None:
            fields = self._credentials.signed({key: fields[key] for key in fields.keys() - SIGNED_WITH}, body)
        if request.flag & FLAG_ONEWAY:
            self.write(encode_forwarded(request, self._pending.next_opaque(), fields, len(body)), body)
            return None
        opaque = self._pending.next_opaque()
        prefix = encode_forwarded(request, opaque, fields, len(body))
        future: asyncio.Future[ReceivedResponse] = self._loop.create_future()
        self.request_encoded(future, request.code, opaque, prefix, body, timeout_s)
        return future

    def sign_with(self, credentials: Credentials | None) -> None:
        """Sign further requests: the peer has proved its identity."""
        self._credentials = credentials

    def _signed(self, header: Header | Mapping[str, str] | None, body: Buffer) -> Header | Mapping[str, str] | None:
        if self._credentials is None:
            return header
        fields = to_ext_fields(header) if isinstance(header, Header) else header or {}
        try:
            return self._credentials.signed(fields, body)
        except (TypeError, ValueError) as error:
            raise NotEncodable(f"a request cannot be signed: {type(error).__name__}: {error}") from None
