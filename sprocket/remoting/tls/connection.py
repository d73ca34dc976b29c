"""One TLS connection of a server: a protocol to the socket's transport below, a transport to the protocol above.

It decrypts for the protocol above and encrypts for the transport below.  A read is handled as a batch, as in
`RemotingChannel`: all its records are decrypted and passed on as one piece, and one write leaves in few records.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from sprocket.common import limits
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.command import Buffer

logger = logging.getLogger(__name__)

# Maximum size of a record: one read of `ssl` decrypts one.
_RECORD_BYTES: Final = 16 * 1024
# Encrypted at once: more would leave the processor's cache before it is sent.
_SEAL_BYTES: Final = 256 * 1024


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """Server's end of a connection.  `make_protocol` is called after the handshake; `on_end` gets its error or None."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        on_end: Callable[["TlsConnection", str | None], None],
    ) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._make_protocol = make_protocol
        self._on_end = on_end
        self._below: asyncio.Transport | None = None
        self._above: asyncio.Protocol | None = None
        self._handshake_bytes = 0
        self._is_closing = False

    @property
    def peer(self) -> tuple[str, int]:
        """Address of the other end."""
        return (self.get_extra_info("peername") or ("", 0))[:2]

    # Of the socket's transport: its protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._above is None:
            self._handshake_bytes += len(data)
            if not self._shake_hands():
                return
        self._receive()

    def _shake_hands(self) -> bool:
        """Return whether the handshake is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_sealed()
            if self._handshake_bytes > limits.TLS_HANDSHAKE_BYTES:
                self._refuse(f"more than {limits.TLS_HANDSHAKE_BYTES} bytes before the handshake was done")
            return False
        except ssl.SSLError as error:
            # The alert that tells the peer why.
            self._send_sealed()
            self._refuse(error.reason or str(error))
            return False
        self._send_sealed()
        self._above = protocol = cast(asyncio.Protocol, self._make_protocol())
        self._on_end(self, None)
        protocol.connection_made(self)
        return True

    def _refuse(self, reason: str) -> None:
        self._is_closing = True
        self._on_end(self, reason)
        if self._below is not None:
            self._below.close()

    def _receive(self) -> None:
        read, above = self._tls.read, self._above
        pieces: list[bytes] = []
        is_over, failure = False, ""
        try:
            while piece := read(_RECORD_BYTES):
                pieces.append(piece)
            is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            is_over = True
        except ssl.SSLError as error:
            failure = error.reason or str(error)
        if pieces and above is not None:
            above.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        # A key update needs an answer, and an error an alert.
        self._send_sealed()
        if failure:
            peer = self.get_extra_info("peername") or ""
            peer_lines.warning(logger, peer, "event=tls_failed peer=%s reason=%s", peer, failure)
            self.abort()
        elif is_over:
            self.eof_received()
            self.close()

    def eof_received(self) -> None:
        """Let the transport close, because the peer sends no more; the protocol may write its last responses before."""
        if self._above is not None:
            self._above.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        above, self._below = self._above, None
        if above is None:
            self._on_end(self, "")
        else:
            above.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # Of the protocol: its transport

    def write(self, data: Buffer) -> None:
        if self._is_closing or self._below is None:
            return
        seal = self._tls.write
        view = memoryview(data)
        start, end = 0, len(view)
        while start < end:
            start += seal(view[start : start + _SEAL_BYTES])
            self._send_sealed()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def _send_sealed(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())

    def close(self) -> None:
        if self._is_closing or self._below is None:
            return
        self._is_closing = True
        # `unwrap` raises instead of waiting for the peer's close_notify, which is not needed here.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._send_sealed()
        self._below.close()

    def abort(self) -> None:
        self._is_closing = True
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._below is None or self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            # Empty if the certificate was not verified.
            return self._tls.getpeercert() or default
        if name == "ssl_object":
            return self._tls
        return default if self._below is None else self._below.get_extra_info(name, default)

    def pause_reading(self) -> None:
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        if self._below is not None:
            self._below.resume_reading()

    def is_reading(self) -> bool:
        return self._below is not None and self._below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (0, 0) if self._below is None else self._below.get_write_buffer_limits()

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._above is not None, "there is none before the handshake is done"
        return self._above
