"""A peer at a master's port for slaves that acknowledges what it was never sent."""

import asyncio
from typing import TYPE_CHECKING, Final, cast

from ha.protocol import report
from tests.sim.cluster.process import Process
from tests.sim.cluster.profile import HA_PORT

if TYPE_CHECKING:
    from tests.sim.cluster.cluster import Cluster
    from tests.sim.cluster.group import Group

_IP: Final = "10.3.0.1"
_LIES: Final = 3


class Liar(asyncio.Protocol):
    """One connection.  It begins as any slave does; what it reports then lies after the end of the master's log."""

    def __init__(self, cluster: "Cluster", group: "Group") -> None:
        self._rng = cluster.scheduler.rng
        self._group = group
        self._transport: asyncio.Transport | None = None
        self.process = Process("liar", _IP, cluster.scheduler, cluster.network)

    def start(self) -> None:
        self.process.call_soon(lambda: self.process.create_task(self._run()))

    async def _run(self) -> None:
        try:
            await self.process.create_connection(lambda: self, self._group.master.machine.ip, HA_PORT)
        except OSError:
            return

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Nobody could tell it from a slave if it said the whole truth about the log's end.
        self._transport.write(report(self._rng.choice((0, self._rng.randint(0, self._end() // 2)))))
        for _ in range(_LIES):
            self.process.call_later(self._rng.uniform(0.02, 0.5), self._lie)

    def _end(self) -> int:
        broker = self._group.master.broker
        return broker.end_offset if broker is not None else 0

    def _lie(self) -> None:
        if self._transport is not None:
            self._transport.write(report(self._end() + self._rng.randint(1, 1_000_000)))
