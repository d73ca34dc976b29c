"""Every client that is tested, with the same scenarios, at our servers and at the original's.

``python -m tests.compat.acceptance [--servers sprocket,apache] [--clients NAME,...] [--page FILE]``

It needs Java, Maven, Go, Node, Rust and the network; a client that cannot be fetched is named, and the others run.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.compat import java_client, maven
from tests.compat.acceptance_page import Run, page
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster
from tests.compat.java_client import Outcome
from tests.compat.proxies import proxy_clients
from tests.compat.proxies.apache_proxy import ApacheProxy
from tests.compat.proxies.proxy_rig import PROPERTIES, SETTINGS, ProxyProcess, prepare

NEWEST: Final = "5.5.1"
_REMOTING, _GRPC = "Remoting", "gRPC"


@dataclass(frozen=True)
class Site:
    """Running servers: the name server, the broker, and the gRPC endpoint of the proxy."""

    namesrv: str
    address: str
    endpoints: str


@dataclass(frozen=True)
class Client:
    """A client with its scenarios; `run` raises JavaMissingError or ClientMissingError where it cannot run."""

    name: str
    way: str
    scenarios: Sequence[str]
    run: Callable[[Site, Path], dict[str, Outcome]]


def _remoting(version: str) -> Client:
    newer = () if version.startswith("4") else (*java_client.POP_SCENARIOS, *java_client.TIMER_SCENARIOS)
    scenarios = (*java_client.SCENARIOS, *newer)

    def run(site: Site, home: Path) -> dict[str, Outcome]:
        return java_client.run_scenarios(site.namesrv, version, "JSON", home, scenarios)

    return Client(f"Java {version}", _REMOTING, scenarios, run)


def _grpc(name: str, scenarios: Sequence[str], start: Callable[[str, str, Sequence[str], Path], dict[str, Outcome]],
) -> Client:  # fmt: skip
    def run(site: Site, home: Path) -> dict[str, Outcome]:
        prefix = name.split()[0].lower()
        prepare(site, prefix, scenarios)
        return start(site.endpoints, prefix, scenarios, home)

    return Client(name, _GRPC, scenarios, run)


def _java_over_grpc(endpoints: str, run: str, scenarios: Sequence[str], home: Path) -> dict[str, Outcome]:
    return proxy_clients.run_java(endpoints, run, scenarios, home, tls=False)


def clients() -> list[Client]:
    """Return all clients, in the order of the columns."""
    python, node = proxy_clients.PYTHON_CLIENT.split("==")[1], proxy_clients.NODE_CLIENT.split("@")[1]
    return [
        *(_remoting(version) for version in sorted(maven.CLIENT_VERSIONS)),
        _grpc(f"Java {proxy_clients.java_version()}", proxy_clients.JAVA_SCENARIOS, _java_over_grpc),
        _grpc(f"Python {python}", proxy_clients.PYTHON_SCENARIOS, proxy_clients.run_python),
        _grpc(f"Node {node}", proxy_clients.NODE_SCENARIOS, proxy_clients.run_node),
        _grpc(f"Go {proxy_clients.go_version()}", proxy_clients.GO_SCENARIOS, proxy_clients.run_go),
        _grpc(f"Rust {proxy_clients.rust_version()}", proxy_clients.RUST_SCENARIOS, proxy_clients.run_rust),
    ]


@contextmanager
def _sprocket(folder: Path) -> Iterator[Site]:
    with SprocketCluster(folder / "servers", properties=PROPERTIES) as cluster:
        proxy = ProxyProcess(_broker_of(cluster, ""), folder / "proxy")
        proxy.start()
        try:
            yield _broker_of(cluster, proxy.endpoints)
        finally:
            proxy.end(signal.SIGTERM)


@contextmanager
def _apache(folder: Path) -> Iterator[Site]:
    with ApacheCluster(folder / "servers", properties=PROPERTIES, version=NEWEST) as cluster:
        proxy = ApacheProxy(_broker_of(cluster, ""), folder / "proxy", version=NEWEST, settings=SETTINGS)
        try:
            proxy.await_start()
            yield _broker_of(cluster, f"127.0.0.1:{proxy.grpc_port}")
        finally:
            proxy.end()


def _broker_of(cluster: Cluster, endpoints: str) -> Site:
    return Site(cluster.name_server_address, cluster.brokers[0].address, endpoints)


SERVERS: Final = {"sprocket": ("Sprocket", _sprocket), "apache": (f"RocketMQ {NEWEST}", _apache)}


def run_at(servers: str, chosen: Sequence[Client], folder: Path, say: Callable[[str], None]) -> list[Run]:
    """Run clients one after the other at one kind of servers."""
    title, start = SERVERS[servers]
    runs = []
    with start(folder) as site:
        for client in chosen:
            # Its name is part of groups' names.
            home = folder / "".join(filter(str.isalnum, client.name)).lower()
            try:
                outcomes, missing = client.run(site, home), ""
            except (maven.JavaMissingError, proxy_clients.ClientMissingError) as error:
                outcomes, missing = {}, str(error).splitlines()[0]
            run = Run(title, client.name, client.way, client.scenarios, outcomes, missing)
            runs.append(run)
            say(f"{title}: {client.way} {client.name}: {missing or run.total}")
            for name in run.failed:
                say(f"  {name}: {run.why(name)}")
    return runs


def main(arguments: Sequence[str]) -> int:
    """Return 0 if every client that ran passes at the first kind of servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", default="sprocket,apache")
    parser.add_argument("--clients", default="", help="beginnings of names, such as 'Java 4,Go'")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args(arguments)
    wanted = tuple(each for each in given.clients.split(",") if each)
    chosen = [client for client in clients() if not wanted or client.name.startswith(wanted)]
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="acceptance") as root:
        for servers in given.servers.split(","):
            runs += run_at(servers, chosen, Path(root) / servers, lambda line: print(line, flush=True))
    if given.page is not None:
        given.page.write_text(page(runs))
    return any(run.failed for run in runs if run.servers == runs[0].servers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
