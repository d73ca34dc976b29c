"""A broker of a cluster with a slave: two real processes whose links go through proxies, and may fail by themselves.

A node's own address is at 127.0.0.1: load that is sent there is not concerned by faults of the links.  What it tells of
itself is at 127.0.0.2 (the port for slaves) and 127.0.0.3 (requests), where proxies listen: a slave, which asks name
servers for its master, comes through them.
"""

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sprocket.common.errors import ClientError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.chaos.load import PROPERTIES
from tests.chaos.nursery import ChaosBroker, ChaosNameServer, Nursery
from tests.chaos.replication.fault_proxy import FaultProxy
from tests.compat.ports import free_broker_port, free_port

_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.02
_HA_HOST: Final = "127.0.0.2"
_REMOTING_HOST: Final = "127.0.0.3"
# Everything that replication waits for comes sooner than by default, so that a short fault is a long one.
_QUICK: Final = {
    "flushDiskType": "ASYNC_FLUSH",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
    "registerNameServerPeriod": "10000",
    "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
}


@dataclass(frozen=True)
class Lag:
    """What a master knows of its slave: where its own log ends, and up to where the slave has it; -1 without one."""

    end: int
    acked: int
    is_in_sync: bool

    @property
    def lag_bytes(self) -> int:
        return self.end - self.acked


class Node(ChaosBroker):
    """A broker on fixed ports, behind a proxy for slaves and one for requests."""

    def __init__(self, nursery: Nursery, directory: Path, properties: Mapping[str, str]) -> None:
        port = free_broker_port()
        own = {
            "listenPort": str(port),
            "bindAddress": "127.0.0.1",
            "brokerIP1": _REMOTING_HOST,
            "brokerIP2": _HA_HOST,
            "haListenPort": str(port + 1),
        }
        super().__init__(
            nursery, directory, {**PROPERTIES, **_QUICK, **own, **properties}, directory.with_suffix(".log")
        )
        self.direct = f"127.0.0.1:{port}"
        self.ha = FaultProxy(("127.0.0.1", port + 1), host=_HA_HOST, port=port + 1)
        self.requests = FaultProxy(("127.0.0.1", port), host=_REMOTING_HOST, port=port)

    def start_as(self, role: str) -> None:
        """Start as a master or a slave.  Raises BrokerEnded."""
        self.properties |= {"brokerRole": role, "brokerId": "1" if role == "SLAVE" else "0"}
        self.start()

    def lose_disk(self) -> None:
        """Everything that it has stored is gone."""
        shutil.rmtree(self.directory)

    def content(self) -> tuple[int, bytes]:
        """Where its log begins, and all of the files from there on; only what is before the log's end counts."""
        files = sorted(path for path in (self.store / "commitlog").iterdir() if path.name.isdigit())
        return int(files[0].name), b"".join(path.read_bytes() for path in files)


class ChaosPair:
    """A master and its slave; a context manager that ends both.  After `promote` the roles are changed."""

    def __init__(
        self,
        nursery: Nursery,
        directory: Path,
        name_servers: str,
        role: str,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.role = role
        own = {"namesrvAddr": name_servers, "brokerName": directory.name, **(properties or {})}
        self.master, self.slave = (Node(nursery, directory / f"node-{number}", own) for number in (1, 2))

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for node in (self.master, self.slave):
                stack.enter_context(node.ha)
                stack.enter_context(node.requests)
                stack.enter_context(node)
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    async def start(self) -> None:
        """Start both, and wait until the slave has the log."""
        self.master.start_as(self.role)
        self.slave.start_as("SLAVE")
        await self.await_caught_up()

    async def lag(self) -> Lag:
        """What the master says now."""
        body = await ask(self.master.direct, RequestCode.GET_BROKER_HA_STATUS)
        table = json.loads(body)
        slaves = table["haConnectionInfo"]
        # A slave that reconnects may count twice until the master has noticed.
        last = max(slaves, key=lambda one: int(one["slaveAckOffset"]), default=None)
        acked = -1 if last is None else int(last["slaveAckOffset"])
        return Lag(int(table["masterCommitLogMaxOffset"]), acked, last is not None and bool(last["inSync"]))

    async def await_caught_up(self) -> None:
        """Wait until the slave has all that the master has, which takes nothing meanwhile."""

        async def has_all() -> bool:
            lag = await self.lag()
            if lag.acked != lag.end or not lag.is_in_sync:
                return False
            # An empty master takes nothing before it knows that its slave has nothing either.
            figures = json.loads(await ask(self.master.direct, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
            return figures["haTailRecovery"] == "false"

        await until(has_all, lambda: f"the slave has all\n{self.logs()}")

    async def await_topic(self, topic: str) -> None:
        """Wait until the slave has heard of a topic: it asks every ten seconds."""

        async def knows() -> bool:
            return topic.encode() in await ask(self.slave.direct, RequestCode.GET_ALL_TOPIC_CONFIG)

        await until(knows, lambda: f"the slave knows {topic}\n{self.logs()}")

    async def promote(self) -> int:
        """Make the slave a master, which the other one is no longer; where its log ends."""
        assert not self.master.pid, "the old master still runs"
        if self.slave.pid:
            self.slave.stop()
        self.master, self.slave = self.slave, self.master
        self.master.start_as(self.role)
        return await log_end(self.master.direct)

    async def assert_same_log(self) -> None:
        """The slave has the master's bytes."""
        await self.await_caught_up()
        end = (await self.lag()).end
        (begin, ours), (slave_begin, theirs) = self.master.content(), self.slave.content()
        first = max(begin, slave_begin)
        assert ours[first - begin : end - begin] == theirs[first - slave_begin : end - slave_begin]

    def logs(self) -> str:
        """The ends of what both say."""
        return f"--- master\n{self.master.log_tail()}\n--- slave\n{self.slave.log_tail()}"


class ChaosNameServers:
    """Two name servers on fixed ports; a context manager."""

    def __init__(self, nursery: Nursery, directory: Path) -> None:
        ports = [free_port(), free_port()]
        self.servers = [
            ChaosNameServer(nursery, directory / f"namesrv-{port}", {"listenPort": str(port)}) for port in ports
        ]
        self.addresses = ";".join(f"127.0.0.1:{port}" for port in ports)

    def __enter__(self) -> Self:
        for server in self.servers:
            server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            if server.pid:
                server.kill()


async def ask(address: str, code: RequestCode) -> bytes:
    """The body of an answer.  Raises ClientError."""
    client = RemotingClient()
    try:
        response = await client.invoke(address, code, None, timeout_s=10.0)
        assert response.code == ResponseCode.SUCCESS, response.remark
        return bytes(response.body)
    finally:
        await client.close()


async def log_end(address: str) -> int:
    """Where the log of a broker ends."""
    table = json.loads(await ask(address, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    return int(table["commitLogMaxOffset"])


async def until(holds: Callable[[], Awaitable[bool]], what: Callable[[], str], limit_s: float = _LIMIT_S) -> None:
    """Wait for a condition; a server that does not answer is one that does not hold."""
    deadline = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(ClientError):
            if await holds():
                return
        assert time.monotonic() < deadline, f"not in {limit_s:g} s: {what()}"
        await asyncio.sleep(_POLL_S)
