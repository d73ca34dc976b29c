"""How long what a connection brings has waited in the kernel, about.

By Little's law it waits for as long as it takes to read what is there at the pace of this connection.
"""

import fcntl
import struct
import termios
from collections.abc import Callable
from typing import Final

# The pace is that of about this long.
_MEMORY_S: Final = 0.5
_COUNT: Final = struct.Struct("@i")
_NO_COUNT: Final = bytes(_COUNT.size)


def unread_bytes(descriptor: int) -> int:
    """What the kernel holds for the socket `descriptor`, and nobody has read.  An edge."""
    try:
        return int(_COUNT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, _NO_COUNT))[0])
    except (OSError, ValueError):  # it is closed
        return 0


class UnreadInput:
    """One connection's; `unread` says what is there behind the last read.

    Never says more than the time since reads began that left something unread: a process that stood still is not
    overloaded by that.
    """

    __slots__ = ("_bytes", "_since", "_unread", "left_bytes")

    def __init__(self, unread: Callable[[], int]) -> None:
        self._unread = unread
        self.left_bytes = 0  # by the last read
        self._since: float | None = None  # when the first read that left something ended, s
        self._bytes = 0  # read since then

    def waited_s(self, size_bytes: int, now: float) -> float:
        """How long the `size_bytes` that are read at `now` have waited."""
        left = self.left_bytes = self._unread()
        if not left:
            self._since = None
            return 0.0
        if self._since is None:
            self._since, self._bytes = now, 0
            return 0.0
        self._bytes += size_bytes
        elapsed = now - self._since
        waited = min(elapsed, elapsed * (size_bytes + left) / self._bytes)
        if elapsed > _MEMORY_S:
            self._since += elapsed / 2
            self._bytes //= 2
        return waited
