"""A cluster of real processes on free ports: Sprocket's own, or Apache RocketMQ's for comparison.

Both have one interface, so that a test or a benchmark that runs against one runs against the other.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.compat import maven, ports, wire

START_LIMIT_S = 120.0
STOP_LIMIT_S = 20.0
_POLL_S = 0.02
CLUSTER_NAME = "DefaultCluster"

# Files are allocated whole.  With RocketMQ's sizes a broker takes a gigabyte and more, before the first message.
_SMALL_FILES = {
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
}
# RocketMQ's sizes, for benchmarks.
LARGE_FILES = {"mappedFileSizeCommitLog": str(1024**3), "maxHashSlotNum": "5000000", "maxIndexNum": "20000000"}

# Small enough for a CI machine that runs the client's JVM beside it.
SMALL_HEAP = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", *maven.SHORT_LIFE)
SMALL_NAME_SERVER_HEAP = ("-Xms64m", "-Xmx128m", *maven.SHORT_LIFE)


class ClusterError(Exception):
    """A server did not start or stop; the text holds the end of its output."""


@dataclass
class Server:
    """One process of the cluster."""

    name: str
    address: str
    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        return self.directory / "output.txt"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise ClusterError(f"{self.name} was not started")
        return self.process.pid

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> int:
        """SIGTERM, then SIGKILL after `STOP_LIMIT_S`; returns the exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def check(self) -> None:
        """Raises ClusterError when the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            tail = self.output.read_text(errors="replace")[-4000:]
            raise ClusterError(f"{self.name} ended with status {self.process.returncode}:\n{tail}")


class Cluster(ABC):
    """Name servers and brokers below `directory`; a context manager that starts and stops them.

    `brokers` are masters, `slaves` has one slave of each of the first of them; `start_slaves` starts those.
    `properties` go into every broker's configuration file and win over the defaults here, among them small files.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        slaves: int = 0,
        name_servers: int = 1,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.registered_s = 0.0
        self.name_servers = [self._make_name_server(index) for index in range(name_servers)]
        self.brokers = [self._make_broker(index, properties or {}) for index in range(brokers)]
        self.slaves = [self._make_broker(index, properties or {}, broker_id=1) for index in range(slaves)]

    @property
    def scripts(self) -> Path:
        """The folder of the console scripts of the environment that runs the tests."""
        return Path(sys.executable).parent

    @abstractmethod
    def name_server_command(self, configuration: Path) -> Sequence[str]:
        """argv of a name server."""

    @abstractmethod
    def broker_command(self, configuration: Path) -> Sequence[str]:
        """argv of a broker."""

    def environment(self, directory: Path) -> Mapping[str, str]:
        """Added to this process's environment."""
        return {}

    def extra_properties(self) -> Mapping[str, str]:
        """Broker properties that this kind of server needs."""
        return {}

    @property
    def name_server_address(self) -> str:
        """As `namesrvAddr` wants it: `host:port;host:port`."""
        return ";".join(server.address for server in self.name_servers)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts all but slaves and returns when every name server routes every broker; stops all when that fails."""
        try:
            for server in self.name_servers:
                server.start()
            for server in self.name_servers:
                self._await(server, partial(wire.invoke, server.address, wire.GET_BROKER_CLUSTER_INFO))
            launched = time.monotonic()
            for broker in self.brokers:
                broker.start()
            for broker in self.brokers:
                self.await_registered(broker)
            self.registered_s = time.monotonic() - launched
        except BaseException:
            self.stop()
            raise

    def start_slaves(self) -> None:
        """Starts them and returns when every name server routes them; `stop` stops them."""
        for slave in self.slaves:
            slave.start()
        for slave in self.slaves:
            self.await_registered(slave)

    def await_registered(self, broker: Server) -> None:
        """Polls every name server until it names the broker and routes the default topic to it."""
        for server in self.name_servers:

            def routed(address: str = server.address) -> bool:
                known = wire.invoke(address, wire.GET_BROKER_CLUSTER_INFO).body
                route = wire.invoke(address, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
                return broker.address.encode() in known and route.code == 0 and broker.name.encode() in route.body

            self._await(broker, routed)

    def stop(self) -> None:
        """Slaves first, then masters, so that they can unregister."""
        with contextlib.ExitStack() as stack:
            for server in [*self.name_servers, *self.brokers, *self.slaves]:
                stack.callback(server.stop)

    @staticmethod
    def _await(server: Server, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            server.check()
            with contextlib.suppress(OSError, wire.WireError):
                if ready():
                    return
            time.sleep(_POLL_S)
        tail = server.output.read_text(errors="replace")[-4000:]
        raise ClusterError(f"{server.name} was not ready in {START_LIMIT_S} s:\n{tail}")

    def _make_name_server(self, index: int) -> Server:
        name = f"namesrv-{index}"
        directory = self.directory / name
        directory.mkdir(parents=True)
        port = ports.free_port()
        configuration = directory / "namesrv.conf"
        _write(configuration, {"listenPort": str(port), "kvConfigPath": str(directory / "kvConfig.json")})
        return Server(
            name, f"127.0.0.1:{port}", self.name_server_command(configuration), directory, self.environment(directory)
        )

    def _make_broker(self, index: int, properties: Mapping[str, str], broker_id: int = 0) -> Server:
        name = f"broker-{'abcdefgh'[index]}"
        directory = self.directory / (f"{name}-slave-{broker_id}" if broker_id else name)
        directory.mkdir(parents=True)
        port = ports.free_broker_port()
        configuration = directory / "broker.conf"
        defaults = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": name,
            "brokerId": str(broker_id),
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": self.name_server_address,
            "storePathRootDir": str(directory / "store"),
            "storePathCommitLog": str(directory / "store" / "commitlog"),
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "autoCreateTopicEnable": "true",
        }
        # Whatever `properties` say of a master, a slave stays one.
        role = {"brokerRole": "SLAVE"} if broker_id else {}
        # A store that the test brings has the sizes that the test knows.
        sizes = {} if "storePathRootDir" in properties else _SMALL_FILES
        _write(configuration, {**defaults, **sizes, **self.extra_properties(), **properties, **role})
        return Server(
            name, f"127.0.0.1:{port}", self.broker_command(configuration), directory, self.environment(directory)
        )


class SprocketCluster(Cluster):
    """The console scripts of the environment that runs the tests."""

    def extra_properties(self) -> Mapping[str, str]:
        # Neither refuse nor clean, however full a developer's disk is, and however slow with the JVM beside it.
        return {
            "diskSpaceWarningLevelRatio": "100",
            "cleanFileForciblyEnable": "false",
            "diskMaxUsedSpaceRatio": "100",
            "brokerFastFailureEnable": "false",
        }

    def name_server_command(self, configuration: Path) -> Sequence[str]:
        return [str(self.scripts / "mqnamesrv"), "-c", str(configuration)]

    def broker_command(self, configuration: Path) -> Sequence[str]:
        return [str(self.scripts / "mqbroker"), "-c", str(configuration)]


class ApacheCluster(Cluster):
    """Apache RocketMQ from Maven Central's jars.  Raises maven.JavaMissingError where it cannot run."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        slaves: int = 0,
        name_servers: int = 1,
        properties: Mapping[str, str] | None = None,
        broker_heap: Sequence[str] = SMALL_HEAP,
        name_server_heap: Sequence[str] = SMALL_NAME_SERVER_HEAP,
        version: str = maven.APACHE_VERSION,
    ) -> None:
        self._classpath = maven.apache_classpath(version)
        self._broker_heap = broker_heap
        self._name_server_heap = name_server_heap
        super().__init__(directory, brokers=brokers, slaves=slaves, name_servers=name_servers, properties=properties)

    def name_server_command(self, configuration: Path) -> Sequence[str]:
        return self._java(configuration, self._name_server_heap, "org.apache.rocketmq.namesrv.NamesrvStartup")

    def broker_command(self, configuration: Path) -> Sequence[str]:
        return self._java(configuration, self._broker_heap, "org.apache.rocketmq.broker.BrokerStartup")

    def environment(self, directory: Path) -> Mapping[str, str]:
        return {"ROCKETMQ_HOME": str(directory)}

    def extra_properties(self) -> Mapping[str, str]:
        # A developer's disk is often fuller than the 75 % at which a broker would begin to delete.
        # Starved by the JVM beside it, it would refuse what waited 200 ms; that is load, not behaviour.
        return {"diskMaxUsedSpaceRatio": "95", "waitTimeMillsInSendQueue": "20000", "waitTimeMillsInPullQueue": "20000"}

    def _java(self, configuration: Path, heap: Sequence[str], main_class: str) -> Sequence[str]:
        home = configuration.parent
        logback = home / "logback.xml"
        logback.write_text(_LOGBACK.format(file=home / "server.log"))
        return [
            maven.java(),
            *heap,
            f"-Duser.home={home}",
            f"-Drmq.logback.configurationFile={logback}",
            "-cp",
            self._classpath,
            main_class,
            "-c",
            str(configuration),
        ]


_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %p %logger - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
