"""Bytes that connections make the proxy hold, of each connection and of all; pure.

There is one budget for requests that are served, and one of the same size for answers that wait for their clients.
"""

from collections.abc import Hashable
from typing import Final

from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire

# Part of everything that one connection may have.
SHARE: Final = 4
# The same when all is taken, with however many others it shares: by default the largest answer of a broker.
_LEAST_SHARE: Final = 16
_OF_CONNECTION, _OF_ALL = "limit of a connection", "limit"


class ByteBudget:
    """Budget of `max_bytes`; a connection may have a quarter of it.

    When all is taken, a connection may still have its equal share or a sixteenth, and one message of any size if it has
    nothing.  So those that took all do not lock out the others.  All together then have at most twice the limit.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._taken: dict[Hashable, int] = {}  # by connection
        self._full: set[Hashable] = set()  # connections that were refused, and have given nothing back since
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
        limit = self._exceeded(connection, size)
        if limit:
            if connection in self._taken:
                self._full.add(connection)
            raise _refused(limit)
        self._taken[connection] = self._taken.get(connection, 0) + size
        self.taken_bytes += size

    def check_room(self, connection: Hashable) -> None:
        """Raise Refusal if a connection may take nothing, or was refused and has given nothing back since."""
        limit = _OF_CONNECTION if connection in self._full else self._exceeded(connection, 1)
        if limit:
            raise _refused(limit)

    def _exceeded(self, connection: Hashable, size: int) -> str:
        """Return the limit that forbids `size` more bytes; empty if they may be taken."""
        limit, held = self._max_bytes, self._taken.get(connection, 0)
        now, total = held + size, self.taken_bytes + size
        if held and now > limit // SHARE:
            return _OF_CONNECTION
        if self.taken_bytes and total > limit:
            share = max(limit // (len(self._taken) + (not held)), limit // _LEAST_SHARE)
            if total > 2 * limit or (held and now > share):
                return _OF_ALL
        return ""

    def give_back(self, connection: Hashable, size: int) -> None:
        """Count `size` bytes no more."""
        self.taken_bytes -= size
        if not size:
            return
        self._full.discard(connection)
        left = self._taken[connection] - size
        if left:
            self._taken[connection] = left
        else:
            del self._taken[connection]


def _refused(limit: str) -> Refusal:
    return Refusal(wire.TOO_MANY_REQUESTS, f"flow {limit} (grpcMaxInFlightSize): read the answers, and call later")
