"""Server processes that start fast, and die as the test wants."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from sprocket.common.failpoints import VARIABLE
from sprocket.common.processes.child_process import await_readable

START_LIMIT_S = 60.0
END_LIMIT_S = 30.0
_ROOT = Path(__file__).parents[2]


class BrokerEnded(Exception):
    """A server ended instead of what was expected of it; the text holds its status and the end of its log."""


class Nursery:
    """The process that forks servers; a context manager.  All of them end with it."""

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair()
        self._orders = ours
        command = [sys.executable, "-m", "tests.chaos.nursery_process"]
        self._process = subprocess.Popen(command, stdin=theirs.fileno(), cwd=_ROOT)
        theirs.close()
        ours.settimeout(START_LIMIT_S)
        assert ours.recv(16) == b"ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orders.close()
        self._process.wait(END_LIMIT_S)

    def start(
        self, program: str, arguments: list[str], directory: Path, environment: Mapping[str, str], out: int, err: int
    ) -> int:
        """Fork `program` (mqbroker or mqnamesrv) with these arguments; its pid."""
        order = {"do": program, "arguments": arguments, "directory": str(directory), "environment": dict(environment)}
        socket.send_fds(self._orders, [json.dumps(order).encode()], [out, err])
        return int(self._orders.recv(64))

    def reap(self, pid: int) -> int:
        """Exit status of a broker that has ended, as `subprocess` gives it."""
        self._orders.send(json.dumps({"do": "reap", "pid": pid}).encode())
        return int(self._orders.recv(64))


class ChaosServer:
    """One server with its files below `directory`, started again and again; `properties` are its configuration."""

    program = ""

    def __init__(
        self, nursery: Nursery, directory: Path, properties: Mapping[str, str], log: Path | None = None
    ) -> None:
        self._nursery = nursery
        self.directory = directory
        self.log = log or directory / "server.log"
        self.properties = dict(properties)
        self._out = -1
        self._handle = -1
        self.pid = 0
        self.address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.pid:
            self.kill()

    def own_properties(self) -> Mapping[str, str]:
        """Where its files are."""
        return {}

    def launch(self, failpoints: str = "") -> None:
        """Start the process and do not wait for it to serve."""
        assert not self.pid, "it runs already"
        arguments = ["--json", "--log-level", "warning"]
        for key, value in {"listenPort": "0", **self.own_properties(), **self.properties}.items():
            arguments += ["--set", f"{key}={value}"]
        self.directory.mkdir(parents=True, exist_ok=True)
        self._out, out = os.pipe()
        with self.log.open("ab") as log:
            self.pid = self._nursery.start(
                self.program, arguments, self.directory, {VARIABLE: failpoints}, out, log.fileno()
            )
        os.close(out)
        self._handle = os.pidfd_open(self.pid)

    def await_serving(self) -> bool:
        """Wait until it serves; False if it ended instead."""
        if not await_readable(self._out, START_LIMIT_S):
            raise BrokerEnded(f"the server said nothing in {START_LIMIT_S} s\n{self.log_tail()}")
        line = os.read(self._out, 65536)
        if line:
            self.address = json.loads(line)["address"]
        return bool(line)

    def start(self, failpoints: str = "") -> None:
        """Start and wait until it serves.  Raises BrokerEnded."""
        self.launch(failpoints)
        if not self.await_serving():
            raise BrokerEnded(f"status {self.wait()} instead of a start\n{self.log_tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, which it may have no time to take."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> int:
        """SIGKILL; the exit status, another one if it had ended before."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Whether it ends within so many seconds."""
        return await_readable(self._handle, within_s)

    def wait(self, limit_s: float = END_LIMIT_S) -> int:
        """The exit status, as `subprocess` gives it.  Raises BrokerEnded if there is none in time."""
        if not self.has_ended(limit_s):
            raise BrokerEnded(f"the server did not end in {limit_s} s\n{self.log_tail()}")
        status = self._nursery.reap(self.pid)
        os.close(self._handle)
        os.close(self._out)
        self.pid = 0
        return status

    def anonymous_bytes(self) -> int:
        """Its memory that is no file's: pages of mapped segments do not count."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise BrokerEnded("no RssAnon")

    def log_tail(self) -> str:
        """The end of what it logged."""
        return self.log.read_text(errors="replace")[-4000:].strip("\0") if self.log.exists() else ""

    def pause(self, limit_s: float = 30.0) -> None:
        """SIGSTOP, and wait until every thread stands still: one that is inside a sync ends that first."""
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            tasks = Path(f"/proc/{self.pid}/task").iterdir()
            if {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}:
                return
            time.sleep(0.001)
        raise BrokerEnded(f"the server does not stand still after {limit_s} s")

    def go_on(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)


class ChaosNameServer(ChaosServer):
    """A name server."""

    program = "mqnamesrv"

    def own_properties(self) -> Mapping[str, str]:
        return {"bindAddress": "127.0.0.1", "kvConfigPath": str(self.directory / "kvConfig.json")}


class ChaosBroker(ChaosServer):
    """A broker.

    Unless its properties say otherwise it has no name server: clients are given its address, which is another after
    each start.
    """

    program = "mqbroker"

    @property
    def store(self) -> Path:
        """Its store."""
        return self.directory / "store"

    def own_properties(self) -> Mapping[str, str]:
        return {"storePathRootDir": str(self.store), "brokerIP1": "127.0.0.1"}
