"""When each connection last brought a call; pure.

A file of its own: calls tell it, and renewals ask it.
"""

from collections.abc import Callable
from typing import Final

Peer = tuple[str, int]
_MAX_CONNECTIONS: Final = 65_536


class Connections:
    """Table of connections by the client's address and port.  The one that was silent the longest is forgotten first.

    The clients of one connection of a load balancer share an entry.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen_at: dict[Peer, float] = {}

    def seen(self, peer: Peer) -> None:
        """Record a call."""
        table = self._seen_at
        table.pop(peer, None)
        if len(table) >= _MAX_CONNECTIONS:
            del table[next(iter(table))]
        table[peer] = self._monotonic()

    def lived(self, peer: Peer, at: float) -> bool:
        """Return whether a call came at `at`, monotonic s, or later."""
        seen_at = self._seen_at.get(peer)
        return seen_at is not None and seen_at >= at
