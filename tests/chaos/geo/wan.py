"""A wide area network between the hosts of two sites.

Hosts of one site reach each other directly.  To hosts of the other site, the address of a server leads to a proxy in
this program, which delays, loses and cuts.  So a server has one address for everybody, as a route names only one.
The proxy reaches the server by a second address.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from tests.chaos.failover.lan import Host, Lan, run_ip
from tests.chaos.replication.fault_proxy import FaultProxy, Way

_OWN_MAC: Final = "02:00:00:00:00:01"
_SECOND: Final = "10.78.0"


class Wan:
    """Proxies before the servers of both sites; all end with this context."""

    def __init__(self, lan: Lan, delay_s: float, lost_share: float) -> None:
        self._lan = lan
        self._delay_s = delay_s
        self._lost_share = lost_share
        self._stack = ExitStack()
        # Site -> proxies before its servers.
        self._proxies: dict[str, list[FaultProxy]] = {}
        self._sites: dict[str, list[Host]] = {}

    def __enter__(self) -> Self:
        run_ip("link", "set", "br0", "address", _OWN_MAC)
        run_ip("addr", "add", f"{_SECOND}.1/24", "dev", "br0")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, site: str) -> Host:
        """Return a new host of a site; hosts are added before `serve`."""
        host = self._lan.add()
        host.ip_command("addr", "add", f"{_SECOND}.{host.number}/24", "dev", f"p{host.number}")
        run_ip("neigh", "replace", host.ip, "lladdr", host.mac, "dev", "br0", "nud", "permanent")
        run_ip("neigh", "replace", self.near_ip(host), "lladdr", host.mac, "dev", "br0", "nud", "permanent")
        self._sites.setdefault(site, []).append(host)
        return host

    @staticmethod
    def near_ip(host: Host) -> str:
        """Return the address by which this program reaches the host without a proxy."""
        return f"{_SECOND}.{host.number}"

    def serve(self, site: str, host: Host, ports: Sequence[int]) -> None:
        """Put a proxy before the server on `host`, for the hosts of other sites."""
        run_ip("addr", "add", f"{host.ip}/32", "dev", "br0")
        for port in ports:
            proxy = FaultProxy((self.near_ip(host), port), host=host.ip, port=port)
            self._stack.enter_context(proxy)
            self._proxies.setdefault(site, []).append(proxy)
        for other, hosts in self._sites.items():
            for one in hosts if other != site else ():
                one.ip_command(
                    "neigh", "replace", host.ip, "lladdr", _OWN_MAC, "dev", f"p{one.number}", "nud", "permanent"
                )

    @property
    def _all(self) -> list[FaultProxy]:
        return [proxy for proxies in self._proxies.values() for proxy in proxies]

    def heal(self) -> None:
        """Leave nothing but the delay and the loss of the distance."""
        for number, proxy in enumerate(self._all):
            proxy.heal()
            proxy.delay(self._delay_s / 2)
            proxy.lose(self._lost_share, number)

    def stall(self, way: Way) -> None:
        """Lose all packets that way, until `heal`."""
        for proxy in self._all:
            proxy.stall(way)

    def half_open(self) -> None:
        """End all connections at the servers; those who hold the other ends hear nothing, until `heal`."""
        for proxy in self._all:
            proxy.half_open()

    def cut(self) -> None:
        """Reset all connections between the sites, and refuse new ones, until `heal`."""
        for proxy in self._all:
            proxy.cut()

    def lose(self, share: float, seed: int) -> None:
        """Lose this share of all packets, until `heal`."""
        for proxy in self._all:
            proxy.lose(share, seed)
