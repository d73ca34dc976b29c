"""What is measured: Sprocket, also with other settings or of another checkout, RocketMQ, a naive control, floor, sink.

The floor does the least that a broker can do; the sink states the ceiling of the generator.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.system import native, process
from benchmarks.system.frames import PULL_BATCH
from benchmarks.system.records import message_record
from benchmarks.system.workload import OPEN, Access
from sprocket.engine.choice import VARIABLE
from sprocket.remoting.credentials import Credentials
from tests.compat import maven, ports, wire
from tests.compat.cluster import LARGE_FILES, ApacheCluster, Cluster, Server, SprocketCluster

ROOT = Path(__file__).resolve().parents[2]
OTHER = "other"
ENGINES = ("sprocket", "apache", "naive", "floor", "sink")
_NO_LIMIT = {"authFailuresPerSecond": "0"}
_ACCOUNT = Credentials("SomeWriter", "secret-of-writer")
_ACCOUNTS = f"""accounts:
  - accessKey: {_ACCOUNT.access_key}
    secretKey: {_ACCOUNT.secret_key}
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""
# As distribution/bin/runbroker.sh and runserver.sh start them, with 2 GiB and 512 MiB instead of 8 and 4 GiB.
APACHE_BROKER_HEAP = (
    *("-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow"),
    *("-XX:+AlwaysPreTouch", "-XX:MaxDirectMemorySize=4g"),
)
APACHE_NAME_SERVER_HEAP = ("-server", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC")


class EngineMissingError(Exception):
    """This engine cannot run here; the text says what is missing."""


@dataclass(frozen=True)
class Running:
    """A started engine.  `registered_s` is None where nothing registers anywhere."""

    address: str
    broker_pid: int
    name_server_pid: int | None
    registered_s: float | None
    access: Access = OPEN
    beside_pid: int | None = None  # a process whose work counts as the broker's

    def cpu_s(self) -> float:
        """Processor seconds of the broker, of the process beside it, and of their children."""
        pids = [self.broker_pid] if self.beside_pid is None else [self.broker_pid, self.beside_pid]
        return sum(map(process.cpu_with_children_s, pids))


@dataclass(frozen=True)
class Variant:
    """Sprocket with other settings: properties of its broker, variables of its processes, access of its clients.

    With `packs` a process beside it packs its closed files (`benchmarks.system.packing`).
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    access: Access = OPEN
    quotas: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    packs: bool = False


_SMALL_BYTES: Final = 64 << 20
_SMALL_SEGMENTS: Final = {"mappedFileSizeCommitLog": str(_SMALL_BYTES)}
# What single features cost, beside `sprocket`.
VARIANTS = {
    "python": Variant(variables={VARIABLE: "python"}),
    "acl1": Variant({"aclEnable": "true", **_NO_LIMIT}, access=Access(_ACCOUNT)),
    "acl2": Variant(
        {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            **_NO_LIMIT,
            "initAuthenticationUser": json.dumps({"username": _ACCOUNT.access_key, "password": _ACCOUNT.secret_key}),
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": "inner", "secretKey": "secret-of-brokers"}
            ),
        },
        access=Access(_ACCOUNT),
    ),
    "tls": Variant(access=Access(has_tls=True)),
    # Smaller files, so that one is archived each second or so; and the same without an archive, alone and beside a
    # process that packs as many.
    "segments": Variant(_SMALL_SEGMENTS),
    "packing": Variant(_SMALL_SEGMENTS, packs=True),
    "archive": Variant({**_SMALL_SEGMENTS, "tieredStoreFilePath": "archive"}),
    "metrics": Variant({"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}),
    # So large that nothing is refused.
    "quotas": Variant(
        quotas={
            name: {"name": name, "messagesIn": 1 << 40, "bytesIn": 1 << 50, "messagesOut": 1 << 40}
            for name in ("topic:*", "address:*")
        }
    ),
}


class _Sprocket(SprocketCluster):
    """Sprocket with the console scripts of a folder."""

    def __init__(self, scripts: Path, directory: Path, properties: Mapping[str, str], variant: Variant) -> None:
        self._scripts, self._variant = scripts, variant
        super().__init__(directory, properties=properties)

    @property
    def scripts(self) -> Path:
        return self._scripts

    def environment(self, directory: Path) -> Mapping[str, str]:
        conf = directory / "conf"
        conf.mkdir()
        (conf / "plain_acl.yml").write_text(_ACCOUNTS)
        if self._variant.quotas:
            config = directory / "store" / "config"
            config.mkdir(parents=True)
            (config / "quotas.json").write_text(json.dumps({"quotaTable": self._variant.quotas}))
        return {"ROCKETMQ_HOME": str(directory), **self._variant.variables}


def label(engine: str) -> str:
    """What a table calls the engine: `other` for `other:PATH`."""
    return engine.partition(":")[0]


def is_known(engine: str) -> bool:
    """Return whether it is one of `ENGINES`, of `VARIANTS`, or `other:PATH` with a checkout that is set up."""
    name, _, path = engine.partition(":")
    return engine in (*ENGINES, *VARIANTS) or (name == OTHER and (Path(path) / ".venv" / "bin" / "mqbroker").exists())


@contextlib.contextmanager
def started(engine: str, directory: Path, *, sync_flush: bool) -> Iterator[Running]:
    """Run one of `ENGINES`, of `VARIANTS`, or `other:PATH`, with its store below `directory`.

    Raises EngineMissingError, ClusterError.
    """
    flush = "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"
    if label(engine) in ("sprocket", OTHER, "apache", *VARIANTS):
        with _cluster(engine, directory, flush) as cluster:
            broker, name_server = cluster.brokers[0], cluster.name_servers[0]
            variant = VARIANTS.get(engine, Variant())
            with _beside(variant, broker) as pid:
                yield Running(
                    broker.address, broker.pid, name_server.pid, cluster.registered_s, variant.access, pid
                )  # fmt: skip
    else:
        with single(engine, directory, flush) as server:
            yield Running(server.address, server.pid, None, None)


@contextlib.contextmanager
def _beside(variant: Variant, broker: Server) -> Iterator[int | None]:
    """Run the process beside a broker, if there is one.  Return its number."""
    if not variant.packs:
        yield None
        return
    log = broker.directory / "store" / "commitlog"
    packing = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.system.packing", str(log), str(_SMALL_BYTES)], cwd=ROOT
    )  # fmt: skip
    try:
        yield packing.pid
    finally:
        packing.terminate()
        packing.wait()


@contextlib.contextmanager
def single(engine: str, directory: Path, mode: str) -> Iterator[Server]:
    """Run a control; `mode` is how it flushes, for the floor also ASYNC_MASTER or SYNC_MASTER, which have a slave.

    Raises EngineMissingError, ClusterError.
    """
    server = _server(engine, directory, mode)
    server.start()
    try:
        _await_port(server)
        yield server
    finally:
        server.stop()


def _cluster(engine: str, directory: Path, flush: str) -> Cluster:
    properties = {**LARGE_FILES, "flushDiskType": flush, "enablePropertyFilter": "true"}
    if engine != "apache":
        variant, path = VARIANTS.get(engine, Variant()), engine.partition(":")[2]
        scripts = Path(path).absolute() / ".venv" / "bin" if path else Path(sys.executable).parent
        return _Sprocket(scripts, directory, {**properties, **variant.properties}, variant)
    try:
        return ApacheCluster(
            directory,
            properties=properties,
            broker_heap=APACHE_BROKER_HEAP,
            name_server_heap=APACHE_NAME_SERVER_HEAP,
        )
    except maven.JavaMissingError as missing:
        raise EngineMissingError(str(missing)) from missing


def _server(engine: str, directory: Path, mode: str) -> Server:
    directory.mkdir(parents=True)
    port = ports.free_port()
    if engine == "naive":
        command = [sys.executable, "-m", "benchmarks.system.naive", str(port), str(directory / "store"), mode]
    elif engine == "floor":
        if native.compiler() is None:
            raise EngineMissingError("the floor is written in C, and there is no C compiler")
        store = directory / "store"
        store.mkdir()
        command = [str(native.compiled("floor.c", shared=False)), str(port), str(store), mode]
    elif native.compiler():
        pulled = directory / "pulled"
        pulled.write_bytes(message_record(b"x" * 128) * PULL_BATCH)
        command = [str(native.compiled("sink.c", shared=False)), str(port), str(pulled)]
    else:
        command = [sys.executable, "-m", "benchmarks.system.sink", str(port)]
    return Server(engine, f"127.0.0.1:{port}", command, directory, {"PYTHONPATH": str(ROOT)})


def _await_port(server: Server) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        server.check()
        try:
            wire.invoke(server.address, wire.GET_BROKER_CLUSTER_INFO)
        except (OSError, wire.WireError):
            time.sleep(0.02)
        else:
            return
    raise subprocess.TimeoutExpired(list(server.command), 30)
