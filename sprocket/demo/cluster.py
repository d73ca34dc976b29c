"""A cluster of real processes: two name servers and two brokers, profile 2m-noslave.

An edge file: it starts processes, reads the line in which each says where it listens, and ends them by the
process object it holds.  The system ends them too when this process dies, however it dies.
"""

import ctypes
import json
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sprocket.common.errors import SprocketError

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_START_LIMIT_S: Final = 30.0
_STOP_LIMIT_S: Final = 20.0
CLUSTER_NAME: Final = "DemoCluster"


class ServerNotStarted(SprocketError):
    """A server ended or said nothing in time; the text holds the end of its log."""


def end_with_parent() -> None:
    """In a child about to run: have the system send SIGTERM when the parent is gone."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


@dataclass
class Server:
    """One server process and how to start it."""

    name: str
    command: list[str]
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    address: str = ""

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    def launch(self) -> None:
        """Start the process; `wait_until_ready` says when it listens."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                preexec_fn=end_with_parent,  # one call into libc, made ready above
            )

    def wait_until_ready(self) -> int:
        """The port that it listens on.  Raises ServerNotStarted."""
        assert self.process is not None and self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], _START_LIMIT_S)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise ServerNotStarted(f"{self.name} did not start within {_START_LIMIT_S:.0f} s; end of its log:\n{tail}")
        port = int(json.loads(line)["port"])
        self.address = f"127.0.0.1:{port}"
        return port

    def end(self, how: signal.Signals) -> None:
        """Send `how` and wait; SIGKILL follows if it takes too long."""
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class DemoCluster:
    """Two name servers, and the brokers broker-a and broker-b, under `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name_servers = [
            Server(f"namesrv-{name}", [*_console_script("mqnamesrv"), "-c", f"namesrv-{name}.properties"], directory)
            for name in "ab"
        ]
        self.brokers: dict[str, Server] = {}

    @property
    def namesrv(self) -> str:
        """What clients are given as name servers."""
        return ";".join(server.address for server in self._name_servers)

    def store_of(self, broker_name: str) -> Path:
        """The store directory of a broker."""
        return self._directory / broker_name / "store"

    def start(self) -> None:
        """Start everything, and wait until each server listens.  Raises ServerNotStarted."""
        for server in self._name_servers:
            _write_properties(self._directory / f"{server.name}.properties", {"listenPort": 0})
            server.launch()
        for server in self._name_servers:
            server.wait_until_ready()
        for name in ("broker-a", "broker-b"):
            self.brokers[name] = Server(name, [], self._directory)
            self._configure(name, 0)
            self.brokers[name].launch()
        for name, server in self.brokers.items():
            self._configure(name, server.wait_until_ready())  # the same port after a crash

    def crash(self, broker_name: str) -> None:
        """SIGKILL a broker and start it again at once; does not wait until it listens."""
        server = self.brokers[broker_name]
        server.end(signal.SIGKILL)
        server.launch()

    def stop(self) -> None:
        """SIGTERM to what runs: brokers first, so that they unregister."""
        for server in [*self.brokers.values(), *self._name_servers]:
            server.end(signal.SIGTERM)

    def _configure(self, name: str, port: int) -> None:
        values = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": name,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": self.store_of(name),
            "mappedFileSizeCommitLog": 64 * 1024 * 1024,
            # However full the machine's disk is: the demo neither loses flights to cleaning nor is refused.
            "cleanFileForciblyEnable": "false",
            "diskSpaceWarningLevelRatio": 100,
        }
        _write_properties(self._directory / f"{name}.properties", values)
        file = str(self._directory / f"{name}.properties")
        self.brokers[name].command = [*_console_script("mqbroker"), "-c", file, "-n", self.namesrv]


def _console_script(name: str) -> list[str]:
    """The project's console script in isolated mode: nothing of the current directory is imported."""
    script = Path(sys.executable).parent / name
    return [sys.executable, "-I", str(script), "--json"]


def _write_properties(path: Path, values: dict[str, object]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
