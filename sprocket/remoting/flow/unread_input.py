"""Estimate of how long the data of a connection waited in the kernel.

By Little's law the wait is the time to read the unread bytes at this connection's rate.
"""

import struct
from collections.abc import Callable
from math import inf
from typing import Final

try:
    import fcntl
    import termios
except ModuleNotFoundError:  # Windows, which runs clients alone: there nothing counts as unread
    _HAS_COUNT = False
else:
    _HAS_COUNT = True

# The rate is measured over about this time.
_MEMORY_S: Final = 0.5
# While nothing is left unread, the kernel is asked only this often: a wait below it is no sign of overload.
_CHECK_S: Final = 0.005
_COUNT: Final = struct.Struct("@i")
_NO_COUNT: Final = bytes(_COUNT.size)


def unread_bytes(descriptor: int) -> int:
    """Return the bytes that the kernel holds unread for the socket `descriptor`.  An edge."""
    if not _HAS_COUNT:
        return 0
    try:
        return int(_COUNT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, _NO_COUNT))[0])
    except (OSError, ValueError):  # the socket is closed
        return 0


class UnreadInput:
    """Unread input of one connection; `unread` returns the bytes that are left after the last read.

    The estimate never exceeds the time since reads began to leave data unread, so that a pause of the process does not
    count as overload.
    """

    __slots__ = ("_bytes", "_next_check", "_since", "_unread", "left_bytes")

    def __init__(self, unread: Callable[[], int]) -> None:
        self._unread = unread
        self.left_bytes = 0  # after the last read
        self._since: float | None = None  # end of the first read that left data, s
        self._bytes = 0  # read since then
        self._next_check = -inf

    def waited_s(self, size_bytes: int, now: float) -> float:
        """Return how long the `size_bytes` that are read at `now` waited, s."""
        if now < self._next_check:
            return 0.0
        left = self.left_bytes = self._unread()
        if not left:
            self._since, self._next_check = None, now + _CHECK_S
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
