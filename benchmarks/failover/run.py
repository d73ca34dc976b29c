"""How long a stock Java client 5.3.3 and Sprocket's client cannot send when a master is killed under controllers.

    python -m benchmarks.failover.run [--rounds 5] [--engines sprocket,apache] [--groups 1,2]

Each engine runs three controllers and one or two broker groups of two brokers with allAckInSyncStateSet, one engine
after the other.  In each round the master of the first group gets SIGKILL at a random moment; both clients, with their
default settings, send one message after the other to one topic of all groups.  A figure is the longest time without an
acknowledged send between the kill and the moment at which the old master is in sync again.
"""

import argparse
import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import cast

from benchmarks.system.process import leave_on_sigterm
from tests.compat import maven, wire
from tests.compat.cluster import Server
from tests.compat.controllers.controllers import TOPIC, ControllerCluster, StockClient, now_ms
from tests.compat.replication.replicas import Kind, until

_GROUPS = ("broker-a", "broker-b")
_REPLICAS = 2
_KEYS = {"allAckInSyncStateSet": "true", "inSyncReplicas": "1"}
# A stock client asks for routes every 30 s: the moment of the kill is random in that period.
_ROUTE_PERIOD_S = 30.0
_AFTER_S = 2.0
CLIENTS = ("Java 5.3.3", "Sprocket")


class SprocketClient:
    """`benchmarks.failover.sender` in a process of its own.  `sent` has the time of each acknowledged send, ms."""

    def __init__(self, name_servers: str) -> None:
        command = [sys.executable, "-m", "benchmarks.failover.sender", name_servers, TOPIC]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.sent: dict[str, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "SprocketClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, body, at_ms = line.split("\t")
            if word == "SENT":
                self.sent[body] = int(at_ms)


def longest_gap_ms(times_ms: list[int], killed_ms: int, until_ms: int) -> int:
    """Return the longest time without an acknowledged send after the kill."""
    points = [killed_ms, *sorted(at for at in times_ms if killed_ms < at <= until_ms), until_ms]
    return max(later - earlier for earlier, later in itertools.pairwise(points))


@contextlib.contextmanager
def started(folder: Path, engine: Kind, groups: int) -> Iterator[tuple[ControllerCluster, list[Server]]]:
    """Controllers, and groups whose brokers are all in sync.  The brokers of the first group."""
    with ControllerCluster(folder, engine) as cluster:
        cluster.start_controllers()
        first: list[Server] = []
        for group in _GROUPS[:groups]:
            for number in range(_REPLICAS):
                broker = cluster.add_broker(number, engine, group, **_KEYS)
                broker.start()
                first += [broker] if group == _GROUPS[0] else []
                _await_in_sync(cluster, group, number + 1)
            address = cluster.replica_info(group)["masterAddress"]
            wire.create_topic(address, TOPIC, 4)
            cluster.await_registered(broker)
        yield cluster, first


def _await_in_sync(cluster: ControllerCluster, group: str, count: int) -> None:
    until(lambda: cluster.in_sync(group) == count, f"{count} brokers of {group} are in sync")


def measure(folder: Path, engine: Kind, groups: int, rounds: int, dice: random.Random) -> dict[str, list[int]]:
    """Return the gaps of each client, ms."""
    gaps: dict[str, list[int]] = {name: [] for name in CLIENTS}
    with (
        started(folder, engine, groups) as (cluster, brokers),
        StockClient(folder / "client", cluster.name_servers) as java,
        SprocketClient(cluster.name_servers) as own,
    ):
        clients: list[StockClient | SprocketClient] = [java, own]
        until(lambda: all(len(client.sent) > 100 for client in clients), "both clients send")
        for _ in range(rounds):
            time.sleep(dice.uniform(0, _ROUTE_PERIOD_S))
            master = cluster.master(brokers)
            assert master is not None
            killed_ms = now_ms()
            master.kill()
            _await_successor(cluster, brokers, master)
            for client in clients:
                _await_sends(client)
            master.start()
            _await_in_sync(cluster, _GROUPS[0], _REPLICAS)
            time.sleep(_AFTER_S)
            for name, client in zip(CLIENTS, clients, strict=True):
                gaps[name].append(longest_gap_ms(list(client.sent.values()), killed_ms, now_ms()))
    return gaps


def _await_successor(cluster: ControllerCluster, brokers: list[Server], master: Server) -> None:
    until(lambda: cluster.master(brokers) not in (None, master), "another broker leads")


def _await_sends(client: StockClient | SprocketClient) -> None:
    until(lambda: any(at > now_ms() - 500 for at in list(client.sent.values())[-5:]), "the client sends again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="sprocket,apache")
    parser.add_argument("--groups", default="1,2")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    try:
        maven.apache_classpath()
        maven.client_classpath("5.3.3")
    except maven.JavaMissingError as missing:
        sys.exit(f"nothing was measured: {missing}")
    print("| brokers and controllers | groups | client | median s | max s | all s |")
    print("|---|--:|---|--:|--:|---|")
    for groups in map(int, arguments.groups.split(",")):
        for engine in arguments.engines.split(","):
            folder = Path(tempfile.mkdtemp(prefix="sprocket-bench-"))
            try:
                gaps = measure(folder, cast(Kind, engine), groups, arguments.rounds, dice)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            for client, found in gaps.items():
                every = " ".join(f"{gap / 1000:.1f}" for gap in found)
                numbers = f"{median(found) / 1000:.1f} | {max(found) / 1000:.1f} | {every}"
                print(f"| {engine} | {groups} | {client} | {numbers} |", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    leave_on_sigterm()
    main()
