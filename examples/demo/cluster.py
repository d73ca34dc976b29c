"""Cluster of real processes: two name servers and two brokers, profile 2m-noslave.

Each prints a line with its address.  The system ends them when this process ends for any reason.
"""

import signal
from pathlib import Path
from typing import Final

from sprocket.common.processes.child_process import ChildProcess, bound

_START_LIMIT_S: Final = 30.0
CLUSTER_NAME: Final = "DemoCluster"


class Server(ChildProcess):
    """Server process of the cluster."""

    address = ""

    def wait_until_ready(self) -> dict[str, object]:
        """Wait for the start line and return its facts, ports included.  Raises ProcessNotStarted."""
        facts = self.facts(_START_LIMIT_S)
        self.address = f"127.0.0.1:{facts['port']}"
        return facts


class DemoCluster:
    """Two name servers, and the brokers broker-a and broker-b, under `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name_servers = [
            Server(f"namesrv-{name}", _server("namesrv", "-c", f"namesrv-{name}.properties"), directory)
            for name in "ab"
        ]
        self.brokers: dict[str, Server] = {}

    @property
    def namesrv(self) -> str:
        """Addresses of the name servers, as clients take them."""
        return ";".join(server.address for server in self._name_servers)

    def store_of(self, broker_name: str) -> Path:
        """Return the store directory of a broker."""
        return self._directory / broker_name / "store"

    def start(self) -> None:
        """Start all servers and wait until each listens.  Raises ProcessNotStarted."""
        for server in self._name_servers:
            _write_properties(self._directory / f"{server.name}.properties", {"listenPort": 0})
            server.launch()
        for server in self._name_servers:
            server.wait_until_ready()
        for name in ("broker-a", "broker-b"):
            self.brokers[name] = Server(name, [], self._directory)
            self._configure(name, {})
            self.brokers[name].launch()
        for name, server in self.brokers.items():
            self._configure(name, server.wait_until_ready())  # the same ports after a crash

    def crash(self, broker_name: str) -> None:
        """Kill a broker with SIGKILL and restart it at once, without waiting until it listens."""
        server = self.brokers[broker_name]
        server.end(signal.SIGKILL)
        server.launch()

    def stop(self) -> None:
        """Send SIGTERM to all servers; brokers first, so that they unregister."""
        for server in [*self.brokers.values(), *self._name_servers]:
            server.end(signal.SIGTERM)

    def _configure(self, name: str, ports: dict[str, object]) -> None:
        values = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": name,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "listenPort": ports.get("port", 0),
            "haListenPort": ports.get("haListenPort", 0),
            "storePathRootDir": self.store_of(name),
            "mappedFileSizeCommitLog": 64 * 1024 * 1024,
            # On a machine with a full disk, the broker neither deletes flights nor refuses sends.
            "cleanFileForciblyEnable": "false",
            "diskSpaceWarningLevelRatio": 100,
        }
        _write_properties(self._directory / f"{name}.properties", values)
        file = str(self._directory / f"{name}.properties")
        self.brokers[name].command = _server("broker", "-c", file, "-n", self.namesrv)


def _server(kind: str, *arguments: str) -> list[str]:
    return bound("sprocket_cli", kind, "--json", *arguments)


def _write_properties(path: Path, values: dict[str, object]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
