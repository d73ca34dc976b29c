"""Clusters of one broker each, and replicators in this process, for the tests of replication."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from replicate.config import Config, parse_config
from replicate.service import Replication
from sprocket.common.clock import SystemClock
from sprocket.common.processes.child_process import ChildProcess, bound
from sprocket.testing import Broker

LIMIT_S = 60.0


def config_text(brokers: dict[str, str], links: list[str], more: str = "") -> str:
    """Return the configuration file of clusters by name and name servers; a link is ``a>b``."""
    clusters = "".join(f'[clusters.{name}]\nnamesrv = "{namesrv}"\n' for name, namesrv in brokers.items())
    made = ""
    for link in links:
        source, target = link.split(">")
        made += f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ncheckpoint-s = 0.5\noffsets-s = 0.5\n{more}\n'
    return clusters + made


def config_of(brokers: dict[str, str], links: list[str], more: str = "") -> Config:
    """Return the configuration that `config_text` makes."""
    return parse_config(config_text(brokers, links, more))


def replicator(folder: Path, text: str, name: str = "test") -> ChildProcess:
    """Return `sprocket replicate run` in a process of its own, to be started with `launch`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "replication.toml").write_text(text)
    command = bound("sprocket_cli", "replicate", "run", "--config", "replication.toml", "--name", name)
    return ChildProcess(name, command, folder)


@asynccontextmanager
async def replicating(config: Config, name: str = "test") -> AsyncIterator[Replication]:
    """A replicator of `config`."""
    replication = Replication(config, name, SystemClock())
    await replication.start()
    try:
        yield replication
    finally:
        await replication.stop()


def two_brokers() -> Iterator[tuple[Broker, Broker]]:
    """Two clusters of one broker."""
    with Broker() as one, Broker() as other:
        yield one, other
