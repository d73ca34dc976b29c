"""Bytes that connections make the proxy hold, of each connection and of all; pure.

There is one budget for requests that are served, and one of the same size for answers that wait for their clients.
"""

from collections.abc import Hashable
from typing import Final

from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire

# Part of everything that one connection may have.
SHARE: Final = 4


class ByteBudget:
    """Budget of `max_bytes`; a connection may have a quarter of it.

    When all is taken, a connection may still have its equal share, so that those who took all do not lock out the
    others.  All together then have at most twice the limit.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._taken: dict[Hashable, int] = {}  # by connection
        self.taken_bytes = 0

    def __len__(self) -> int:
        """Return the number of connections that hold bytes."""
        return len(self._taken)

    def take(self, connection: Hashable, size: int) -> None:
        """Count `size` bytes until they are given back.  Raises Refusal if there are too many.

        One message may be larger than everything.
        """
        if not size:
            return
        held = self._taken.get(connection, 0)
        now, total = held + size, self.taken_bytes + size
        if held and now > self._max_bytes // SHARE:
            raise _refused("limit of a connection")
        if self.taken_bytes and total > self._max_bytes:
            sharing = len(self._taken) + (not held)
            if total > 2 * self._max_bytes or now * sharing > self._max_bytes:
                raise _refused("limit")
        self._taken[connection] = now
        self.taken_bytes = total

    def give_back(self, connection: Hashable, size: int) -> None:
        """Count `size` bytes no more."""
        self.taken_bytes -= size
        if not size:
            return
        left = self._taken[connection] - size
        if left:
            self._taken[connection] = left
        else:
            del self._taken[connection]


def _refused(limit: str) -> Refusal:
    return Refusal(wire.TOO_MANY_REQUESTS, f"flow {limit} (grpcMaxInFlightSize): read the answers, and call later")
