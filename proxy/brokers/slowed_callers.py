"""Clients over a quota, as a proxy slows them: it does not serve their connections for a time after each refusal.

A broker does the same with the connections of its clients.  It cannot behind a proxy whose connection to it all clients
share, nor in the process of the proxy.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from proxy.brokers.caller_connections import Caller
from sprocket.client.connection.wakeup import pause
from sprocket.common.refusal_pace import MAX_WAIT_S, RefusalPace

_MAX_KNOWN: Final = 4096
K = TypeVar("K")
V = TypeVar("V")
Peer = tuple[str, int]


class SlowedCallers:
    """Callers that brokers have refused of late, and their connections.  Lives in the event loop's thread."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._paces: OrderedDict[Caller, RefusalPace] = OrderedDict()
        self._until_s: OrderedDict[Peer, float] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether any caller may be slowed now."""
        return bool(self._paces or self._until_s)

    def refused(self, caller: Caller) -> float:
        """Note that a quota has refused a request of a caller; return for how long its connection waits, s."""
        pace = self._paces.pop(caller, None) or RefusalPace()
        _keep(self._paces, caller, pace)
        return pace.refused_s(self._now_s())

    def served(self, caller: Caller, peer: Peer) -> None:
        """Note that a call of a caller on a connection has been served, perhaps refused."""
        pace = self._paces.get(caller)
        if pace is None:
            return
        now_s = self._now_s()
        if pace.until_s <= now_s:
            del self._paces[caller]
        else:
            _keep(self._until_s, peer, min(pace.until_s, now_s + MAX_WAIT_S))

    async def wait(self, peer: Peer) -> None:
        """Wait until calls on a connection are served again."""
        wait_s = self._until_s.get(peer, 0.0) - self._now_s()
        if wait_s > 0:
            await pause(wait_s)
        elif peer in self._until_s:
            del self._until_s[peer]


def _keep(table: OrderedDict[K, V], key: K, value: V) -> None:
    if len(table) >= _MAX_KNOWN:
        table.popitem(last=False)
    table[key] = value
