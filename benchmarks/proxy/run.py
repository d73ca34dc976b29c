"""Rate, CPU and memory of the proxy, of RocketMQ 5.3.3's, and of canned servers, with one client in one run.

    python -m benchmarks.proxy.run [--rounds 7] [--slice 1.5] [--outstanding 64] [--kinds ours,apache,asyncio]

The client is RocketMQ's for Java, 5.0.8 (`compat.grpc.Bench`), one process for all servers, with plain text and bodies
of 1 KiB.  All servers run side by side before one Sprocket broker.  A round is a slice of sends and a slice of receives
with acknowledgements at each server, the first one in turns.  Shown are medians of the rounds.  CPU is that of the
server's processes alone, from /proc.  `other:PATH` is the proxy of another checkout that is set up.  A rate and, less
so, the CPU depend on what else the machine does, so the ratios to RocketMQ's proxy are shown too: each is the median of
the ratios of the rounds.  `local`, `apache-local` and `other-local:PATH` are proxies in local mode: each has a broker
of its own in its process.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.proxy import canned
from benchmarks.system.process import cpu_s, machine, memory
from sprocket.testing import Broker
from tests.compat import maven
from tests.compat.proxies.apache_proxy import ApacheProxy
from tests.compat.proxies.proxy_clients import java_classpath
from tests.compat.proxies.proxy_rig import OwnBroker, ProxyProcess, prepare

OURS, APACHE, OTHER = "ours", "apache", "other"
LOCAL, APACHE_LOCAL, OTHER_LOCAL = "local", "apache-local", "other-local"
# Name, processes and settings of our proxy.
_OURS: Final = {
    OURS: {"tlsServerMode": "disabled"},
    "ours-permissive": {"tlsServerMode": "permissive"},
    "ours-grpcio": {"tlsServerMode": "disabled", "grpcServer": "grpcio"},
    "local-grpcio": {"tlsServerMode": "disabled", "grpcServer": "grpcio"},
    "ours-without": {"tlsServerMode": "disabled"},
    "ours-2": {"tlsServerMode": "disabled", "proxyProcesses": "2"},
}
KINDS: Final = (*_OURS, APACHE, LOCAL, APACHE_LOCAL, *canned.KINDS)
_SHOWN: Final = (*KINDS, f"{OTHER}:PATH", f"{OTHER_LOCAL}:PATH")
# With a broker in their process.
_LOCAL: Final = {LOCAL, APACHE_LOCAL, OTHER_LOCAL, "local-grpcio"}
# A warm-up ends if the last slices of this number bring no rise by this factor.
_WARM_SLICE_S: Final = 3.0
_WARM_LOOK: Final = 4
_WARM_RISE: Final = 1.03
_RECEIVERS: Final = 8
SCENARIO: Final = "bench"


class Figure(NamedTuple):
    """One slice: messages/s, ms of the server's CPU for each message, and the times of sends in ms."""

    rate: float
    cpu_ms: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


@dataclass
class Server:
    """One running server; `pids` are its processes."""

    kind: str
    endpoints: str
    pids: list[int]
    starts_s: float
    peak_mib: float = 0.0
    sends: list[Figure] = field(default_factory=list)
    receives: list[Figure] = field(default_factory=list)

    @property
    def cpu_s(self) -> float:
        return sum(cpu_s(pid) for pid in self.pids)

    @property
    def memory_mib(self) -> float:
        return sum(memory(pid).resident_bytes for pid in self.pids) / 2**20


class Client:
    """The client's process, connected to all servers."""

    def __init__(self, servers: list[Server], clients: int, home: Path) -> None:
        self._clients = clients
        home.mkdir()
        command = [maven.java(), "-Xmx512m", f"-Duser.home={home}", "-Dmq.consoleAppender.enabled=false"]
        command += ["-cp", java_classpath(), "compat.grpc.Bench", str(clients)]
        for server in servers:
            command += [server.endpoints, topic_of(server.kind)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer("READY")

    def run(self, servers: list[Server], server: Server, what: str, parallel: int, seconds: float) -> Figure:
        assert self._process.stdin is not None
        before = server.cpu_s
        index = servers.index(server)
        self._process.stdin.write(f"{what} {index} {parallel} {self._clients} {seconds}\n")
        self._process.stdin.flush()
        count, took, failed, p50_us, p99_us = self._answer("").split()
        if int(failed):
            raise SystemExit(f"{server.kind}: {failed} calls failed, {count} did not")
        cpu_ms = (server.cpu_s - before) * 1000 / max(1, int(count))
        return Figure(int(count) / float(took), cpu_ms, int(p50_us) / 1000, int(p99_us) / 1000)

    def _answer(self, begin: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(begin) and (begin or line[:1].isdigit()):
                return line
        raise SystemExit("the client ended")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def topic_of(kind: str) -> str:
    """Name of the topic of one server."""
    return f"{kind}-{SCENARIO}"


def name_of(kind: str) -> str:
    """What tables call a kind: `other` for `other:PATH`."""
    return kind.partition(":")[0]


@contextlib.contextmanager
def started(kind: str, broker: Broker, folder: Path) -> Iterator[Server]:
    """Start the server of a kind, and stop it at the end."""
    begin = time.monotonic()
    name, _, checkout = kind.partition(":")
    its_broker = OwnBroker(broker.namesrv, folder / name) if name in _LOCAL else broker
    if name in _OURS or name in (OTHER, LOCAL, OTHER_LOCAL):
        python = Path(checkout, ".venv", "bin", "python") if checkout else None
        proxy = ProxyProcess(its_broker, folder, _OURS.get(name, _OURS[OURS]), python).start()
        took = time.monotonic() - begin
        children = Path(f"/proc/{proxy.pid}/task/{proxy.pid}/children").read_text().split()
        try:
            prepare(its_broker, name, [SCENARIO])
            yield Server(name, proxy.endpoints, [proxy.pid, *map(int, children)], took)
        finally:
            proxy.end(signal.SIGTERM)
    elif kind in (APACHE, APACHE_LOCAL):
        theirs = ApacheProxy(its_broker, folder)
        try:
            theirs.await_start()
            prepare(its_broker, kind, [SCENARIO])
            yield Server(kind, f"127.0.0.1:{theirs.grpc_port}", [theirs.pid], time.monotonic() - begin)
        finally:
            theirs.end()
    else:
        command = [sys.executable, "-m", "benchmarks.proxy.canned", kind]
        command += [broker.address] if kind == canned.RELAY else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            prepare(broker, kind, [SCENARIO])
            yield Server(kind, f"127.0.0.1:{port}", [process.pid], time.monotonic() - begin)
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=1.5)
    parser.add_argument("--outstanding", type=int, default=64)
    parser.add_argument("--clients", type=int, default=1, help="connections, over which the sends are spread")
    parser.add_argument("--warm", type=float, default=180, help="max seconds of the warm-up of each server")
    parser.add_argument("--kinds", default=f"{OURS},{APACHE},asyncio", help=", ".join(_SHOWN))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if not {name_of(kind) for kind in kinds} <= {*KINDS, OTHER, OTHER_LOCAL}:
        parser.error(f"--kinds: allowed is {', '.join(KINDS)}")
    servers = measured(kinds, options)
    rows = [row(server) for server in servers]
    if options.json:
        print(json.dumps({"machine": machine(), "servers": rows}, indent=1))
        return
    for name in rows[0]:
        print(f"{name:>16}", *(f"{one[name]:>16}" for one in rows))
    for name, ratios in compared(servers).items():
        print(f"{name:>16}", *(f"{ratio:>16.2f}" for ratio in ratios))


def measured(kinds: list[str], options: argparse.Namespace) -> list[Server]:
    """Return the servers with what was measured at them."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        folder = Path(name)
        broker = running.enter_context(Broker(folder / "broker"))
        servers = [running.enter_context(started(kind, broker, folder / name_of(kind))) for kind in kinds]
        client = Client(servers, options.clients, folder / "client")
        running.callback(client.end)
        for server in servers:
            # A new group begins at the end of its topic.
            client.run(servers, server, "receive", _RECEIVERS, 0.1)
            warm_up(client, servers, server, options)
        for number in range(options.rounds):
            for index in range(len(servers)):
                server = servers[(index + number) % len(servers)]
                server.sends.append(client.run(servers, server, "send", options.outstanding, options.slice))
                server.receives.append(client.run(servers, server, "receive", _RECEIVERS, options.slice))
                print(f"round {number} {server.kind}: {server.sends[-1]} {server.receives[-1]}", file=sys.stderr)
        for server in servers:
            server.peak_mib = server.memory_mib
        return servers


def compared(servers: list[Server]) -> dict[str, list[float]]:
    """Return the ratios of the servers to RocketMQ's proxy if it is there, else to the first."""
    base = next((server for server in servers if server.kind in (APACHE, APACHE_LOCAL)), servers[0])

    def ratio(server: Server, what: str, figure: str) -> float:
        own, other = getattr(server, what), getattr(base, what)
        return median(getattr(a, figure) / getattr(b, figure) for a, b in zip(own, other, strict=True))

    names = (("sends", "rate"), ("sends", "cpu_ms"), ("receives", "rate"), ("receives", "cpu_ms"))
    return {f"{what} {figure}": [ratio(server, what, figure) for server in servers] for what, figure in names}


def warm_up(client: Client, servers: list[Server], server: Server, options: argparse.Namespace) -> None:
    """Run slices until neither rate rises any more: Java compiles while it runs, for a minute and longer."""
    rates: dict[str, list[float]] = {"send": [], "receive": []}
    end = time.monotonic() + options.warm
    while time.monotonic() < end:
        for what, parallel in (("send", options.outstanding), ("receive", _RECEIVERS)):
            rates[what].append(client.run(servers, server, what, parallel, _WARM_SLICE_S).rate)
        if not any(_rises(found) for found in rates.values()):
            break
    said = {what: [round(rate) for rate in found] for what, found in rates.items()}
    print(f"warm-up {server.kind}: {said}", file=sys.stderr)


def _rises(rates: list[float]) -> bool:
    """Return whether the last rates have a new maximum, or are too few to tell."""
    before, last = rates[:-_WARM_LOOK], rates[-_WARM_LOOK:]
    return not before or max(last) > max(before) * _WARM_RISE


def row(server: Server) -> dict[str, str]:
    """Return the medians of a server as texts."""
    return {
        "server": server.kind,
        "sends/s": f"{median(one.rate for one in server.sends):.0f}",
        "CPU ms": f"{median(one.cpu_ms for one in server.sends):.3f}",
        "received/s": f"{median(one.rate for one in server.receives):.0f}",
        "CPU ms each": f"{median(one.cpu_ms for one in server.receives):.3f}",
        "MiB": f"{server.peak_mib:.0f}",
        "start s": f"{server.starts_s:.2f}",
    }


if __name__ == "__main__":
    main()
