"""A cluster in the test's own event loop, started from the files of its members as their commands do."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from controller.config import ControllerConfig
from controller.server import Controller
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import SprocketError
from sprocket.remoting.tls.settings import TlsSettings
from sprocket_cli.processes.local_cluster import Member
from sprocket_cli.server.dledger_mode import dledger_mode
from sprocket_cli.server.server_config import broker_configuration, namesrv_configuration
from store.config.store_config import StoreConfig
from tests.combinations.profiles import Guard, Written, write
from tests.combinations.traffic import WAIT_S


class _Server(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Host:
    """What one file of the profile starts: a name server or a broker, and the controller beside it if it has one."""

    def __init__(self, member: Member, file: Path) -> None:
        self.member = member
        self.servers: list[_Server] = []
        self._file = file
        self._failures: list[SprocketError] = []

    @property
    def broker(self) -> Broker:
        """The broker that runs here."""
        return next(one for one in self.servers if isinstance(one, Broker))

    async def start(self) -> None:
        """Start the servers, one after the other."""
        for make in self._of_broker() if self.member.is_broker else self._of_name_server():
            self.servers.append(make())
            await self.servers[-1].start()

    async def stop(self) -> None:
        """Stop the servers, the last one first; nothing has failed."""
        while self.servers:
            await self.servers.pop().stop()
        assert self._failures == []

    def move_store(self, root: Path) -> None:
        """Let the next start use the store in `root`."""
        text = self._file.read_text()
        (old,) = re.findall(r"^storePathRootDir=(.*)$", text, re.MULTILINE)
        self._file.write_text(text.replace(old, str(root)))

    def configure(self, keys: Mapping[str, str]) -> None:
        """Let the next start have these keys."""
        lines = [line for line in self._file.read_text().splitlines() if line.partition("=")[0] not in keys]
        self._file.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in keys.items()), ""]))

    def _of_name_server(self) -> list[Callable[[], _Server]]:
        configuration = namesrv_configuration(self._file)
        assert configuration.notices == ()
        config, tls = configuration.of(NamesrvConfig), configuration.of(TlsSettings)
        server = NameServer(config, tls=tls, on_bug=self._failures.append)
        if not config.enable_controller_in_namesrv:
            return [lambda: server]
        controller = configuration.of(ControllerConfig)
        return [
            lambda: server,
            lambda: Controller(controller, tls=tls, on_fatal=self._failures.append, access=server.access),
        ]

    def _of_broker(self) -> list[Callable[[], _Server]]:
        configuration = broker_configuration(self._file, None)
        assert configuration.notices == ()
        config, store, tls = (
            configuration.of(BrokerConfig),
            configuration.of(StoreConfig),
            configuration.of(TlsSettings),
        )
        mode = dledger_mode(config, store)
        if mode is None:
            return [lambda: Broker(config, store, tls=tls, on_fatal=self._failures.append)]
        return [
            lambda: Controller(mode.controller, tls=tls, on_fatal=self._failures.append),
            lambda: Broker(mode.broker, mode.store, tls=tls, on_fatal=self._failures.append),
        ]


class Site:
    """The servers of a cluster."""

    def __init__(self, written: Written) -> None:
        self.written = written
        conf = written.cluster.directory / "conf"
        self.hosts = [Host(member, conf / f"{member.name}.properties") for member in _servers(written)]
        self._brokers = [host for host in self.hosts if host.member.is_broker]

    def master(self, group: str) -> Host:
        """Return the host whose broker leads `group`."""
        hosts = (host for host in self._brokers if host.member.broker_name == group and host.servers)
        return next(host for host in hosts if not host.broker.role.is_slave)

    async def start(self) -> None:
        """Start the name servers with their controllers, then the masters, then their slaves."""
        await asyncio.gather(*(host.start() for host in self.hosts if host not in self._brokers))
        slaves = [host for host in self._brokers if host.member.is_slave]
        masters = [host for host in self._brokers if host not in slaves]
        await asyncio.gather(*(host.start() for host in masters))
        if slaves:
            # A slave that finds no master asks again after 10 s.
            await asyncio.gather(*(host.broker.registration.wait_registered(WAIT_S) for host in masters))
            await asyncio.gather(*(host.start() for host in slaves))

    async def stop(self) -> None:
        """Stop brokers, then the others."""
        await asyncio.gather(*(host.stop() for host in self._brokers))
        await asyncio.gather(*(host.stop() for host in self.hosts))


def _servers(written: Written) -> list[Member]:
    return [member for member in written.cluster.members if not member.is_proxy]


@asynccontextmanager
async def site_at(
    directory: Path, profile: str, guard: Guard, keys: Mapping[str, Mapping[str, str]] | None = None
) -> AsyncIterator[Site]:
    """A cluster that runs; `keys` are those of members, by broker name, beside what the profile has."""
    site = Site(write(directory, profile, guard))
    for host in site.hosts:
        host.configure((keys or {}).get(host.member.broker_name, {}))
    try:
        await site.start()
        yield site
    finally:
        await site.stop()
