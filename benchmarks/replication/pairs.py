"""A master and its slaves as processes, of this project or of Apache RocketMQ, with one interface."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.system.engines import APACHE_NAME_SERVER_HEAP, EngineMissingError
from tests.compat import maven, ports, wire
from tests.compat.cluster import (
    CLUSTER_NAME,
    LARGE_FILES,
    ApacheCluster,
    Cluster,
    ClusterError,
    Server,
    SprocketCluster,
)

GET_BROKER_HA_STATUS = 907
BROKER_NAME = "broker-a"
# As `benchmarks.system.engines`, with a heap that leaves room for a second broker.
APACHE_HEAP = (
    *("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow"),
    *("-XX:+AlwaysPreTouch", "-XX:MaxDirectMemorySize=2g"),
)
_LIMIT_S = 120.0


@dataclass(frozen=True)
class SlaveState:
    """What a master says of its slave: where its own log ends, and up to where the slave has acknowledged it."""

    master_end: int
    acked: int


class Pair:
    """A cluster of one master, to which slaves can be added.  The caller starts `cluster`."""

    def __init__(self, engine: str, cluster: Cluster) -> None:
        self.engine = engine
        self.cluster = cluster

    @property
    def master(self) -> Server:
        return self.cluster.brokers[0]

    @contextlib.contextmanager
    def slave(self, directory: Path, properties: Mapping[str, str] | None = None) -> Iterator[Server]:
        """A new slave with an empty store below `directory`; its store is removed in the end."""
        directory.mkdir(parents=True)
        port = ports.free_broker_port()
        settings = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": BROKER_NAME,
            "brokerId": "1",
            "brokerRole": "SLAVE",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": self.cluster.name_server_address,
            "storePathRootDir": str(directory / "store"),
            "storePathCommitLog": str(directory / "store" / "commitlog"),
            "flushDiskType": "ASYNC_FLUSH",
            **self.cluster.extra_properties(),
            **(properties or {}),
        }
        configuration = directory / "broker.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = self.cluster.broker_command(configuration)
        server = Server("slave", f"127.0.0.1:{port}", command, directory, self.cluster.environment(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()
            shutil.rmtree(directory / "store", ignore_errors=True)

    def state(self) -> SlaveState | None:
        """What the master says; None while no slave is connected."""
        status = json.loads(wire.invoke(self.master.address, GET_BROKER_HA_STATUS).body)
        slaves = status["haConnectionInfo"]
        if not slaves:
            return None
        return SlaveState(status["masterCommitLogMaxOffset"], slaves[0]["slaveAckOffset"])

    def await_connected(self, slave: Server) -> None:
        """Return when the master counts the slave."""

        def is_counted() -> bool:
            slave.check()
            return self.state() is not None

        until(is_counted, f"the master of {self.engine} has its slave")

    def await_in_step(self, slave: Server) -> None:
        """Return when the slave has all of the log."""

        def in_step() -> bool:
            slave.check()
            state = self.state()
            return state is not None and state.acked >= state.master_end

        until(in_step, f"the slave of {self.engine} has the log")


@contextlib.contextmanager
def started(
    engine: str, directory: Path, properties: Mapping[str, str], *, store: Path | None = None
) -> Iterator[Pair]:
    """A master that runs, on a copy of `store` where one is given.  Raises EngineMissingError, ClusterError."""
    properties = {**LARGE_FILES, "brokerIP2": "127.0.0.1", **properties}
    cluster: Cluster
    if engine == "apache":
        try:
            cluster = ApacheCluster(
                directory,
                properties=properties,
                broker_heap=APACHE_HEAP,
                name_server_heap=APACHE_NAME_SERVER_HEAP,
            )
        except maven.JavaMissingError as missing:
            raise EngineMissingError(str(missing)) from missing
    else:
        cluster = SprocketCluster(directory, properties=properties)
    if store is not None:
        shutil.copytree(store, cluster.brokers[0].directory / "store", dirs_exist_ok=True)
    try:
        with cluster:
            yield Pair(engine, cluster)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def until(holds: Callable[[], object], what: str, *, pause_s: float = 0.02) -> None:
    """Ask until it holds.  Raises ClusterError after two minutes."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        with contextlib.suppress(OSError, wire.WireError):
            if holds():
                return
        if time.monotonic() > deadline:
            raise ClusterError(f"not in {_LIMIT_S:g} s: {what}")
        time.sleep(pause_s)
