"""Three controllers, a name server, and a broker group of three under them; each process on a host of its own."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.controller import SyncStateSet
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from sprocket.remoting.headers.controller import (
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from tests.chaos.failover.lan import Host, Lan
from tests.chaos.load import PROPERTIES

TOPIC: Final = "Chaos"
NAME: Final = "broker-a"
BROKER_PORT: Final = 10911
CONTROLLER_PORT: Final = 9878
NAMESRV_PORT: Final = 9876
# A busy machine needs long to start seven processes.
WAIT_S: Final = 120.0
_POLL_S: Final = 0.05
_ANSWER_S: Final = 2.0
_QUICK: Final = {
    **PROPERTIES,
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
    "haMaxTimeSlaveNotCatchup": "1500",
    "checkSyncStateSetPeriod": "500",
    "syncBrokerMetadataPeriod": "1000",
    "slaveTimeout": "1500",
    "brokerRole": "SYNC_MASTER",
}


class Program:
    """One process on one host, started again and again."""

    def __init__(self, host: Host, program: str, directory: Path, properties: Mapping[str, str]) -> None:
        self.host = host
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self.is_stopped = False
        self._program = program
        self._properties = dict(properties)

    def command(self, configuration: Path) -> list[str]:
        """Return what runs on the host."""
        return [str(Path(sys.executable).parent / self._program), "-c", str(configuration)]

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is not None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / f"{self._program}.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
        command = self.command(configuration)
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.host.command(command), stdout=log, stderr=log, cwd=self.directory)

    def kill(self) -> None:
        """SIGKILL; its host goes on, so that its connections are reset."""
        process, self.process, self.is_stopped = self.process, None, False
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)
            self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self.process is not None and self.is_stopped:
            self.process.send_signal(signal.SIGCONT)
            self.is_stopped = False

    def check(self) -> None:
        """Fail if it has ended by itself."""
        if self.process is not None and (status := self.process.poll()) is not None:
            tail = (self.directory / "log").read_text(errors="replace")[-3000:]
            raise AssertionError(f"{self._program} at {self.host.ip} ended with {status}:\n{tail}")


class Broker(Program):
    """A broker of the group."""

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{self.host.ip}:{BROKER_PORT}"


class FailoverGroup:
    """All processes; they end with this context.

    `home` returns a directory by name, `changes` are keys of the brokers' configuration.
    """

    def __init__(self, lan: Lan, home: Callable[[str], Path], changes: Mapping[str, str]) -> None:
        self.lan = lan
        self.client = RemotingClient(connect_timeout_s=1.0)
        places = [lan.add() for _ in range(7)]
        self.name_server = Program(places[6], "mqnamesrv", home("namesrv"), {
            "listenPort": str(NAMESRV_PORT), "bindAddress": places[6].ip,
        })  # fmt: skip
        self._is_dledger = changes.get("enableDLegerCommitLog") == "true"
        homes = places[3:6] if self._is_dledger else places[:3]
        peers = ";".join(f"n{at}-{host.ip}:{CONTROLLER_PORT}" for at, host in enumerate(homes))
        self.controllers = [] if self._is_dledger else [
            Program(host, "mqcontroller", home(f"controller-{at}"), {
                "controllerDLegerGroup": "group1", "controllerDLegerPeers": peers, "controllerDLegerSelfId": f"n{at}",
                "controllerStorePath": "store", "bindAddress": host.ip,
            })
            for at, host in enumerate(homes)
        ]  # fmt: skip
        addresses = ";".join(f"{host.ip}:{CONTROLLER_PORT}" for host in homes)
        self.brokers = [
            Broker(host, "mqbroker", home(f"broker-{at}"), {
                **_QUICK, "brokerClusterName": "c", "brokerName": NAME,
                "namesrvAddr": f"{places[6].ip}:{NAMESRV_PORT}",
                "brokerIP1": host.ip, "brokerIP2": host.ip, "bindAddress": host.ip,
                "listenPort": str(BROKER_PORT), "haListenPort": str(BROKER_PORT + 1),
                "storePathRootDir": "store",
                **(
                    {"dLegerPeers": peers, "dLegerSelfId": f"n{at}"}
                    if self._is_dledger
                    else {"enableControllerMode": "true", "controllerAddr": addresses}
                ),
                **changes,
            })
            for at, host in enumerate(places[3:6])
        ]  # fmt: skip

    @property
    def electors(self) -> list[Program]:
        """The processes that elect: the controllers, or in DLedger mode the brokers."""
        return [*self.brokers] if self._is_dledger else self.controllers

    @property
    def programs(self) -> list[Program]:
        """All processes, controllers first."""
        return [self.name_server, *self.controllers, *self.brokers]

    async def __aenter__(self) -> Self:
        for program in self.programs:
            program.start()
        await self.until_whole("the group has started")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()
        for program in self.programs:
            program.kill()

    # What the controllers say

    async def leader(self) -> Program | None:
        """The controller that another one, or itself, calls the leader."""
        for controller in self.electors:
            if controller.process is None or controller.is_stopped:
                continue
            address = f"{controller.host.ip}:{CONTROLLER_PORT}"
            try:
                answer = await self.client.invoke(
                    address, RequestCode.CONTROLLER_GET_METADATA_INFO, None, timeout_s=_ANSWER_S
                )
            except ClientError:
                continue
            known = answer.header(GetMetaDataResponseHeader).controller_leader_address or ""
            for one in self.electors:
                if known.startswith(f"{one.host.ip}:"):
                    return one
        return None

    async def state(self) -> tuple[Broker | None, int, int]:
        """The master, its epoch, and how many are in sync; (None, 0, 0) if nobody knows."""
        leader = await self.leader()
        if leader is None:
            return None, 0, 0
        asked = GetReplicaInfoRequestHeader(broker_name=NAME)
        address = f"{leader.host.ip}:{CONTROLLER_PORT}"
        try:
            answer = await self.client.invoke(
                address, RequestCode.CONTROLLER_GET_REPLICA_INFO, asked, timeout_s=_ANSWER_S
            )
        except ClientError:
            return None, 0, 0
        if answer.code != ResponseCode.SUCCESS:
            return None, 0, 0
        header, told = answer.header(GetReplicaInfoResponseHeader), loads(answer.body, SyncStateSet)
        master = next((one for one in self.brokers if one.address == header.master_address), None)
        return master, header.master_epoch or 0, len(told.sync_state_set)

    async def until_whole(self, what: str) -> Broker:
        """Wait until there is a master, which says so itself, and all brokers are in sync.  Return the master.

        Until the next election the controllers name a master that was killed.
        """
        deadline = time.monotonic() + WAIT_S
        while True:
            master, _, in_sync = await self.state()
            if master is not None and in_sync == len(self.brokers) and await self._leads(master):
                return master
            for program in self.programs:
                program.check()
            assert time.monotonic() < deadline, f"{what}: master {master and master.address}, {in_sync} in sync"
            await asyncio.sleep(_POLL_S)

    async def _leads(self, broker: Broker) -> bool:
        try:
            answer = await self.client.invoke(
                broker.address, RequestCode.GET_BROKER_HA_STATUS, None, timeout_s=_ANSWER_S
            )
        except ClientError:
            return False
        return answer.code == ResponseCode.SUCCESS and loads(answer.body, HARuntimeInfo).master

    async def create_topic(self, queues: int) -> None:
        """Create the topic at the master."""
        master = await self.until_whole("the topic")
        header = CreateTopicRequestHeader(
            topic=TOPIC, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        answer = await self.client.invoke(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_s=10)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
