"""Connections between a client and a server of one process: no socket, no system call.

Each end is a protocol of asyncio, as at a socket.  So order, limits, back-pressure, the close, and all that a server
knows of a peer are the same.  What one end writes in a turn of the loop the other end reads in the next one, at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sprocket.common import limits
from sprocket.remoting.command import Buffer
from sprocket.remoting.flow.joined_buffers import joined

# Connects a client's end with the server in this process that is at an address; None if none is.
Connect = Callable[[asyncio.Protocol], None]
InProcess = Callable[[str], Connect | None]

# Both ends are here.  The server stores this as the host of messages that arrive this way.
_ADDRESS: Final = ("127.0.0.1", 0)


def nowhere(address: str) -> None:
    """Return that no server is in this process."""


def connect(client: asyncio.Protocol, server: asyncio.Protocol) -> None:
    """Connect two protocols."""
    end = _End(asyncio.get_running_loop(), client, server)
    server.connection_made(end.other)
    client.connection_made(end)


class _End(asyncio.Transport):
    """Transport of `protocol`.  `other` is the other end, or its protocol: then that end is made, too."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, other: "_End | asyncio.Protocol"
    ) -> None:
        super().__init__({"peername": _ADDRESS, "sockname": _ADDRESS})
        self._loop = loop
        self._protocol = protocol
        self.other: _End = other if isinstance(other, _End) else _End(loop, other, self)
        self._unread: deque[Buffer] = deque()  # what the other end has written and `protocol` has not read
        self._unread_bytes = 0
        self._is_scheduled = False
        self._reads = True
        self._is_closing = self._is_lost = False
        self._high_bytes, self._low_bytes = limits.WRITE_PAUSE_BYTES, limits.WRITE_PAUSE_BYTES // 4
        self._may_write = True  # whether the protocol was not told to pause

    # What the protocol writes

    def write(self, data: Buffer) -> None:
        """Let the other end read `data` in the next turn of the loop."""
        other = self.other
        if self._is_closing or other._is_closing or not len(data):
            return
        other._unread.append(data)
        other._unread_bytes += len(data)
        if not other._is_scheduled:
            other._schedule()
        if other._unread_bytes > self._high_bytes and self._may_write:
            self._may_write = False
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.other._unread_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = limits.WRITE_PAUSE_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    # What the protocol reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        if self._unread:
            self._schedule()

    def is_reading(self) -> bool:
        return self._reads and not self._is_closing

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Give the protocol one read, and tell it of the end after the last one."""
        self._is_scheduled = False
        if self._is_closing:
            self._unread.clear()
            self._unread_bytes = 0
        elif self._unread and self._reads:
            self._read_once()
        if not self._unread and self.other._is_closing and not self.other._is_lost:
            self.other._is_lost = True
            self._loop.call_soon(self.other._protocol.connection_lost, None)
            if not self._is_closing and not self._protocol.eof_received():
                self.close()

    def _read_once(self) -> None:
        unread = self._unread
        data = unread.popleft()
        if unread:
            data, *rest = joined([data, *unread])
            unread.clear()
            unread.extend(rest)
        self._unread_bytes -= len(data)
        other = self.other
        if not other._may_write and self._unread_bytes <= other._low_bytes:
            other._may_write = True
            self._loop.call_soon(other._protocol.resume_writing)
        if unread:
            self._schedule()
        try:
            self._protocol.data_received(bytes(data))
        except Exception as error:
            self._loop.call_exception_handler({
                "message": "a connection in this process failed", "exception": error, "transport": self,
                "protocol": self._protocol,
            })  # fmt: skip
            self.abort()

    # The end

    def close(self) -> None:
        """Close once the other end has read what was written."""
        self._is_closing = True
        self.other._schedule()

    def abort(self) -> None:
        """Close, and drop what the other end has not read."""
        self.other._unread.clear()
        self.other._unread_bytes = 0
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> Any:
        return self._protocol
