"""Clients over a quota, as a proxy slows them: it does not serve their connections for a time after each refusal.

Of accounts that share a connection only the one that was refused waits.

A broker does the same with the connections of its clients.  It cannot behind a proxy whose connection to it all clients
share, nor in the process of the proxy.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from proxy.brokers.caller_connections import Caller
from sprocket.client.connection.wakeup import pause
from sprocket.common.refusal_pace import MAX_WAIT_S, REFUSAL_S, RefusalPace

_MAX_KNOWN: Final = 4096
K = TypeVar("K")
V = TypeVar("V")
Peer = tuple[str, int]


class SlowedCallers:
    """Connections with requests that brokers have refused of late.  Lives in the event loop's thread.

    All refusals of one caller have one pace, on however many connections.  Only its calls on those connections wait.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._paces: OrderedDict[Caller, RefusalPace] = OrderedDict()
        # By connection and account; the last that was changed is the last.
        self._until_s: OrderedDict[tuple[Peer, str | None], float] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether any call may have to wait now."""
        return bool(self._until_s)

    def refused(self, caller: Caller, peer: Peer) -> float:
        """Note that a quota has refused a request of a caller on a connection; return for how long that waits, s."""
        now_s, pace = self._now_s(), self._paces.pop(caller, None) or RefusalPace()
        _keep(self._paces, caller, pace)
        wait_s = pace.refused_s(now_s)
        key = peer, caller.account
        _keep(self._until_s, key, max(now_s + wait_s, self._until_s.get(key, 0.0)))
        return wait_s

    async def wait(self, peer: Peer, account: str | None) -> None:
        """Wait until a call of an account on a connection is served; those that wait are served one after the other."""
        now_s, key = self._now_s(), (peer, account)
        while self._until_s and next(iter(self._until_s.values())) <= now_s:
            self._until_s.popitem(last=False)
        until_s = self._until_s.get(key, 0.0)
        if until_s > now_s:
            _keep(self._until_s, key, min(until_s + REFUSAL_S, now_s + MAX_WAIT_S))
            await pause(until_s - now_s)


def _keep(table: OrderedDict[K, V], key: K, value: V) -> None:
    table.pop(key, None)
    if len(table) >= _MAX_KNOWN:
        table.popitem(last=False)
    table[key] = value
