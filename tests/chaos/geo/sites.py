"""One site: a name server and two brokers; between two sites a replicator for each direction, which runs at the target.

Every process has a host of its own.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.chaos.failover.group import BROKER_PORT, NAMESRV_PORT, Program
from tests.chaos.geo.wan import Wan
from tests.chaos.load import PROPERTIES

BROKERS: Final = 2
_SHIFTED: Final = Path(__file__).with_name("shifted.py")


class ShiftedProgram(Program):
    """A program whose wall clock is `shift_ms` ahead."""

    shift_ms = 0

    def command(self, configuration: Path) -> list[str]:
        """Return what runs on the host."""
        program, *arguments = super().command(configuration)
        return [sys.executable, str(_SHIFTED), str(self.shift_ms), Path(program).name, *arguments]


class Site:
    """The servers of one cluster; `name` is also the name of the cluster."""

    def __init__(self, name: str, wan: Wan, home: Callable[[str], Path], shift_ms: int) -> None:
        self.name = name
        place = wan.add(name)
        self.name_server = Program(place, "mqnamesrv", home(f"{name}-namesrv"), {
            "listenPort": str(NAMESRV_PORT), "bindAddress": "0.0.0.0",
        })  # fmt: skip
        self.namesrv_address = f"{place.ip}:{NAMESRV_PORT}"
        self.near_namesrv_address = f"{wan.near_ip(place)}:{NAMESRV_PORT}"
        self.brokers: list[ShiftedProgram] = []
        # The addresses of the brokers for the program that runs the rounds.
        self.addresses: list[str] = []
        for number in range(BROKERS):
            host = wan.add(name)
            broker = ShiftedProgram(
                host, "mqbroker", home(f"{name}-broker-{number}"), self._properties(number, host.ip)
            )
            broker.shift_ms = shift_ms
            self.brokers.append(broker)
            self.addresses.append(f"{wan.near_ip(host)}:{BROKER_PORT}")

    def _properties(self, number: int, ip: str) -> Mapping[str, str]:
        return {
            **PROPERTIES, "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
            "brokerClusterName": self.name, "brokerName": f"broker-{number}", "brokerId": "0",
            "namesrvAddr": self.namesrv_address, "brokerIP1": ip, "bindAddress": "0.0.0.0",
            "listenPort": str(BROKER_PORT), "haListenPort": str(BROKER_PORT + 1), "storePathRootDir": "store",
        }  # fmt: skip

    def serve(self, wan: Wan) -> None:
        """Let the other site in."""
        wan.serve(self.name, self.name_server.host, [NAMESRV_PORT])
        for broker in self.brokers:
            wan.serve(self.name, broker.host, [BROKER_PORT])

    @property
    def programs(self) -> list[Program]:
        """All processes."""
        return [self.name_server, *self.brokers]
