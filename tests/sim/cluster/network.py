"""A simulated network: links with delay and cuts, ports that are listened on, messages without a connection."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.sim.cluster.scheduler import Scheduler

if TYPE_CHECKING:
    from tests.sim.cluster.connection import Connection, Stream
    from tests.sim.cluster.process import Process

Factory = Callable[[], asyncio.BaseProtocol]
# How long a packet takes, s, on a link that is well; and on one that is slow.
_FAST: Final = (0.0002, 0.003)
_SLOW: Final = (0.05, 0.6)
# After this time a sender whose packets were lost tries again.
_RETRANSMIT: Final = (0.05, 1.0)


@dataclass
class Link:
    """One direction between two machines."""

    is_cut: bool = False
    is_slow: bool = False
    waiting: "list[Stream]" = field(default_factory=list)


@dataclass
class _Socket:
    address: tuple[str, int]
    is_listening: bool = False

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def fileno(self) -> int:
        return 0

    def getsockopt(self, level: int, name: int) -> int:
        """SO_ACCEPTCONN is all that the project asks for."""
        return int(self.is_listening)


class SimServer:
    """A port that is listened on: the part of `asyncio.Server` that the project uses."""

    def __init__(self, network: "Network", process: "Process", port: int, factory: Factory) -> None:
        self._network = network
        self.process = process
        self.port = port
        self.factory = factory
        self.sockets = [_Socket((process.ip, port))]

    def close(self) -> None:
        if self._network.servers.get((self.process.ip, self.port)) is self:
            del self._network.servers[self.process.ip, self.port]

    async def start_serving(self) -> None:
        """Connections come from now on."""
        self.sockets[0].is_listening = True

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""

    def is_serving(self) -> bool:
        return self.sockets[0].is_listening and self._network.servers.get((self.process.ip, self.port)) is self


class Network:
    """All machines by address.  A machine without power answers nothing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.servers: dict[tuple[str, int], SimServer] = {}
        self.connections: dict[int, Connection] = {}
        self.without_power: set[str] = set()
        self._links: dict[tuple[str, str], Link] = {}
        self._ports = 40_000
        self._numbers = 0

    # Links

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link()
        return found

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives in this direction until `heal`."""
        self.link(source, target).is_cut = True

    def heal(self, source: str, target: str) -> None:
        """What was sent during the cut and is still wanted arrives now, a little later."""
        link = self.link(source, target)
        link.is_cut = link.is_slow = False
        waiting, link.waiting = link.waiting, []
        for stream in waiting:
            stream.go_on(self.scheduler.rng.uniform(*_RETRANSMIT))

    def heal_all(self) -> None:
        for source, target in list(self._links):
            self.heal(source, target)

    def delay_s(self, source: str, target: str) -> float:
        return self.scheduler.rng.uniform(*(_SLOW if self.link(source, target).is_slow else _FAST))

    # Without a connection

    def tell(self, source: str, target: str, callback: Callable[..., object], *args: Any) -> None:
        """One message; lost if the link is cut when it would arrive."""

        def arrive() -> None:
            if not self.link(source, target).is_cut and target not in self.without_power:
                callback(*args)

        self.scheduler.after(self.delay_s(source, target), arrive)

    # Connections

    def bind(self, process: "Process", port: int, factory: Factory) -> SimServer:
        """A port that is not served yet.  Raises OSError for a port that is taken."""
        if not port:
            port = self.next_port()
        if (process.ip, port) in self.servers:
            raise OSError(98, "Address already in use")
        server = self.servers[process.ip, port] = SimServer(self, process, port, factory)
        return server

    def listen(self, process: "Process", port: int, factory: Factory) -> SimServer:
        """A port that is served at once.  Raises OSError as `bind` does."""
        server = self.bind(process, port, factory)
        server.sockets[0].is_listening = True
        return server

    def next_port(self) -> int:
        self._ports += 1
        return self._ports

    def connect(
        self, process: "Process", host: str, port: int, factory: Factory, future: "asyncio.Future[Any]"
    ) -> None:
        from tests.sim.cluster.connection import Connection

        self._numbers += 1
        Connection(self, self._numbers, process, (host, port), factory, future)

    def between(self, first: str, second: str) -> "list[Connection]":
        """The open connections of two machines."""
        return [one for one in self.connections.values() if one.addresses in ((first, second), (second, first))]

    def process_ended(self, process: "Process") -> None:
        """The kernel closes what a killed process had open."""
        for key in [key for key, server in self.servers.items() if server.process is process]:
            del self.servers[key]
        for connection in list(self.connections.values()):
            connection.process_ended(process)

    def power_lost(self, ip: str) -> None:
        """Nobody hears of it: the connections of a machine are gone with its memory."""
        self.without_power.add(ip)
        for key in [key for key in self.servers if key[0] == ip]:
            del self.servers[key]
        for connection in list(self.connections.values()):
            connection.power_lost(ip)

    def power_back(self, ip: str) -> None:
        self.without_power.discard(ip)
