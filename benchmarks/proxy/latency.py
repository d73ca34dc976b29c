"""Times of sends at the proxy beside RocketMQ's: alone, and with thousands of idle clients and some that do not read.

    python -m benchmarks.proxy.latency [--rounds 7] [--idle 5000] [--unread 4] [--kinds ours,apache]

The client and the servers are those of `benchmarks.proxy.run`.  First come slices of sends without others.  Then
each server gets `--idle` clients and `--unread` connections of `benchmarks.proxy.idle_clients`, and the slices come
once more.  Shown are medians of the slices, and what each idle client takes of the server's memory.  `ours-without`
gets none of them, so it shows what the processes of the others' clients take from all.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.proxy.run import APACHE, KINDS, OURS, SCENARIO, Client, Figure, Server, started, topic_of, warm_up
from sprocket.testing import Broker
from tests.compat.proxies.proxy_rig import prepare

# The first clients of a server take what it then has for the next ones, too.
FIRST: Final = 50
# Ours, which nobody else asks.
WITHOUT: Final = "ours-without"


@contextlib.contextmanager
def others(server: Server, count: int, unread: int = 0, on_one: int = 1) -> Iterator[None]:
    """Connect clients that are idle, and some that do not read, to a server until the end of the block."""
    command = [sys.executable, "-m", "benchmarks.proxy.idle_clients", server.endpoints.rpartition(":")[2]]
    command += [topic_of(server.kind), str(count), "--unread", str(unread), "--on-one", str(on_one)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise SystemExit(f"{server.kind}: the idle clients failed")
        yield
        if process.poll() is not None:
            raise SystemExit(f"{server.kind}: the idle clients ended")
    finally:
        process.stdin.close()
        process.wait()


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=1.5)
    parser.add_argument("--outstanding", type=int, default=64)
    parser.add_argument("--idle", type=int, default=5000)
    parser.add_argument("--unread", type=int, default=4)
    parser.add_argument("--clients", type=int, default=1, help="connections, over which the sends are spread")
    parser.add_argument("--warm", type=float, default=180, help="max seconds of the warm-up of each server")
    parser.add_argument("--kinds", default=f"{OURS},{APACHE}", help=", ".join(KINDS))
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if not {*kinds} <= {*KINDS}:
        parser.error(f"--kinds: allowed is {', '.join(KINDS)}")
    print(f"{'':24} {'sends/s':>8} {'CPU ms':>8} {'p50 ms':>8} {'p99 ms':>8}")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        folder = Path(name)
        broker = running.enter_context(Broker(folder / "broker"))
        for kind in kinds:
            prepare(broker, kind, [SCENARIO])
        servers = [running.enter_context(started(kind, broker, folder / kind)) for kind in kinds]
        client = Client(servers, options.clients, folder / "client")
        running.callback(client.end)
        for server in servers:
            warm_up(client, servers, server, options)
            with others(server, FIRST):
                pass
        show("alone", servers, sends(client, servers, options))
        for server in servers:
            if server.kind == WITHOUT:
                continue
            before_mib = server.memory_mib
            running.enter_context(others(server, options.idle, options.unread))
            each_kib = (server.memory_mib - before_mib) * 1024 / options.idle
            print(f"{server.kind}: {each_kib:.1f} KiB for each idle client")
        show(f"with {options.idle} idle", servers, sends(client, servers, options))


def sends(client: Client, servers: list[Server], options: argparse.Namespace) -> list[list[Figure]]:
    """Return the slices of each server; those of a round come one after the other."""
    found: list[list[Figure]] = [[] for _ in servers]
    for number in range(options.rounds):
        for index in range(len(servers)):
            place = (index + number) % len(servers)
            figure = client.run(servers, servers[place], "send", options.outstanding, options.slice)
            found[place].append(figure)
    return found


def show(what: str, servers: list[Server], found: list[list[Figure]]) -> None:
    """Print the medians of each server."""
    for server, figures in zip(servers, found, strict=True):
        rate, cpu_ms, p50_ms, p99_ms = (median(column) for column in zip(*figures, strict=True))
        print(f"{server.kind + ' ' + what:24} {rate:8.0f} {cpu_ms:8.3f} {p50_ms:8.2f} {p99_ms:8.2f}", flush=True)


if __name__ == "__main__":
    main()
