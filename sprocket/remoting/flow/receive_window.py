"""How much a peer may send ahead of what is read: less while it sends more than is served.

A receive buffer that grows by itself, to 32 MiB where a system lets it, holds seconds of requests, and some hold far
more than others.  They wait better with their sender, who can do something about it.  Only who is refused is held
back, and only then: who is far away needs a large window.
"""

import contextlib
import socket
from collections.abc import Iterable
from typing import Final

# Enough for what is read at once.
NARROW_BYTES: Final = 256 * 1024
# A peer may still send what it has been told before.  Its buffer is made small when that has come: all of it is read,
# or it is full and so nothing is under way.
_SETTLED_S: Final = 0.1
_EMPTY_BYTES: Final = 64 * 1024
_FULL_BYTES: Final = 4 * NARROW_BYTES
_CLAMP: Final = getattr(socket, "TCP_WINDOW_CLAMP", None)  # Linux has it
# Linux 5.14; Python has no name for them.  Whether a buffer's size was set, and so does not change by itself.
_SO_BUF_LOCK: Final = 72
_RCVBUF_LOCK: Final = 2


def set_buffers(sockets: Iterable[socket.socket], receive_bytes: int, send_bytes: int) -> None:
    """Give connections that are accepted on `sockets` buffers of a set size; 0 leaves them to the system.

    The system doubles what is said, and holds it to its own limits.
    """
    for listening in sockets:
        for option, size_bytes in ((socket.SO_RCVBUF, receive_bytes), (socket.SO_SNDBUF, send_bytes)):
            if size_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, option, size_bytes)


class ReceiveWindow:
    """That of one connection.  An edge.

    `peer` is its socket; None, one that is not TCP, or whose buffer has a set size, stays as it is.
    """

    __slots__ = ("_clamp_bytes", "_narrowed_at", "_size_bytes", "_socket")

    def __init__(self, peer: socket.socket | None) -> None:
        self._socket = peer
        self._clamp_bytes = 0  # the usual one; 0 while it is not narrow
        self._size_bytes = 0  # of the usual buffer; 0 while it has that
        self._narrowed_at = 0.0

    @property
    def is_narrow(self) -> bool:
        """Whether the peer is held back."""
        return self._clamp_bytes > 0

    def narrow(self, left_bytes: int, now: float) -> None:
        """Hold the peer back, at monotonic `now`, when so much was left unread."""
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
                # The system doubles it, for what it needs itself.
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * NARROW_BYTES)
                peer.setsockopt(socket.IPPROTO_TCP, _CLAMP, NARROW_BYTES)
        except OSError:  # it is closed, no TCP, or the system is older
            self._socket = None

    def widen(self) -> None:
        """As it was; it changes by itself again."""
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
