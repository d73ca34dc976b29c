"""TCP receive window of a connection, which is narrowed while the peer sends more than is served.

A receive buffer that grows by itself, up to 32 MiB on some systems, holds seconds of requests, and some buffers hold
far more than others.  Requests should wait at their sender instead, which can react.  Only a peer with refused
requests gets a narrow window, and only meanwhile: a distant peer needs a large window.
"""

import contextlib
import socket
from collections.abc import Iterable
from typing import Final

# Enough for one read.
NARROW_BYTES: Final = 256 * 1024
# A peer may still fill the window that was announced before.  The buffer shrinks after this data has arrived: then the
# buffer is empty, or it is full and no data is in flight.
_SETTLED_S: Final = 0.1
_EMPTY_BYTES: Final = 64 * 1024
_FULL_BYTES: Final = 4 * NARROW_BYTES
_CLAMP: Final = getattr(socket, "TCP_WINDOW_CLAMP", None)  # Linux has it
# Linux 5.14; Python has no names for them.  They tell whether the buffer's size was set and so stays constant.
_SO_BUF_LOCK: Final = 72
_RCVBUF_LOCK: Final = 2


def set_buffers(sockets: Iterable[socket.socket], receive_bytes: int, send_bytes: int) -> None:
    """Give connections that are accepted on `sockets` buffers of a set size; 0 leaves them to the system.

    The system doubles the values and applies its own limits.
    """
    for listening in sockets:
        for option, size_bytes in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
            if size_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, option, size_bytes)


class ReceiveWindow:
    """Receive window of one connection.  An edge.

    `peer` is its socket.  No socket, a socket other than TCP, or one with a set buffer size is left alone.
    """

    __slots__ = ("_clamp_bytes", "_narrowed_at", "_size_bytes", "_socket")

    def __init__(self, peer: socket.socket | None) -> None:
        self._socket = peer
        self._clamp_bytes = 0  # the usual clamp; 0 while the window is not narrow
        self._size_bytes = 0  # size of the usual buffer; 0 while it is in use
        self._narrowed_at = 0.0

    @property
    def is_narrow(self) -> bool:
        """Whether the peer is held back."""
        return self._clamp_bytes > 0

    def narrow(self, left_bytes: int, now: float) -> None:
        """Narrow the window at monotonic `now`, with `left_bytes` unread."""
        peer = self._socket
        if peer is None or _CLAMP is None or self._size_bytes:
            return
        try:
            if not self._clamp_bytes:
                if peer.getsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK) & _RCVBUF_LOCK:
                    self._socket = None
                    return
                self._clamp_bytes = peer.getsockopt(socket.IPPROTO_TCP, _CLAMP)
                self._narrowed_at = now
                peer.setsockopt(socket.IPPROTO_TCP, _CLAMP, NARROW_BYTES)
            elif not _EMPTY_BYTES < left_bytes < _FULL_BYTES and now - self._narrowed_at > _SETTLED_S:
                self._size_bytes = peer.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                # The system doubles the value for its own overhead.
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * NARROW_BYTES)
                peer.setsockopt(socket.IPPROTO_TCP, _CLAMP, NARROW_BYTES)
        except OSError:  # the socket is closed or is not TCP, or the system is older
            self._socket = None

    def widen(self) -> None:
        """Restore the usual window and buffer, whose size changes by itself again."""
        peer, clamp_bytes, size_bytes = self._socket, self._clamp_bytes, self._size_bytes
        self._clamp_bytes = self._size_bytes = 0
        if peer is None or _CLAMP is None or not clamp_bytes:
            return
        with contextlib.suppress(OSError):
            if size_bytes:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes // 2)
                locks = peer.getsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK)
                peer.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, locks & ~_RCVBUF_LOCK)
            peer.setsockopt(socket.IPPROTO_TCP, _CLAMP, clamp_bytes)
