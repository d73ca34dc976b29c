"""Brokers and operators who ask the controllers, and write down what they asked and were told."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from sprocket.common.errors import ClientError, ProtocolError
from sprocket.remoting.bodies.controller import SyncStateSet
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
)
from sprocket.remoting.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.checkers.linearizability import Call
from tests.sim.cluster.machine import Machine
from tests.sim.controllers.group_model import Alter, Elect, Read, View
from tests.sim.controllers.sim_controller import PORT

CLUSTER: Final = "c"
GROUP: Final = "broker-a"
_TIMEOUT_S: Final = 3.0
# Requests of one broker at a time.
_ASKING: Final = 2
_BEAT_S: Final = 0.5
_BEAT_LIMIT_MS: Final = 2_000
# Certainly not carried out.
_NOTHING: Final = (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_BUSY)
_OTHERS: Final = (ResponseCode.SYSTEM_ERROR,)


class Asker:
    """One broker: it registers, sends heartbeats to all controllers, and asks one after another at random."""

    def __init__(self, machine: Machine, broker_id: int, controllers: Sequence[str]) -> None:
        self.machine = machine
        self.broker_id = broker_id
        self.process = machine.start_process()
        self.history: list[Call] = []
        self.answers: dict[str, int] = {}
        self._addresses = [f"{ip}:{PORT}" for ip in controllers]
        self._rng = machine.scheduler.rng
        self._seen = View()
        self._leader = ""  # address of the controller that answered last
        self._client: RemotingClient | None = None
        self.process.call_soon(self._begin)

    def _begin(self) -> None:
        self._client = RemotingClient(connect_timeout_s=1.0)
        for work in (self._live(), *(self._beat(address) for address in self._addresses)):
            self.process.create_task(work).add_done_callback(lambda task: task.result())

    @property
    def _address(self) -> str:
        return f"{self.machine.ip}:10911"

    async def _live(self) -> None:
        check_code = f"{self._address};1"
        names = {"cluster_name": CLUSTER, "broker_name": GROUP}
        apply = ApplyBrokerIdRequestHeader(**names, applied_broker_id=self.broker_id, register_check_code=check_code)
        register = RegisterBrokerToControllerRequestHeader(
            **names, broker_id=self.broker_id, broker_address=self._address
        )
        await self._insist(RequestCode.CONTROLLER_APPLY_BROKER_ID, apply)
        await self._insist(RequestCode.CONTROLLER_REGISTER_BROKER, register)
        for _ in range(_ASKING - 1):
            self.process.create_task(self._go_on()).add_done_callback(lambda task: task.result())
        await self._go_on()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.02, 0.5))
            await self._rng.choice((self._read, self._read, self._alter, self._alter, self._elect))()

    async def _insist(self, code: RequestCode, header: Header) -> None:
        while True:
            answer = await self._ask(self._anyone(), code, header)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                return
            await asyncio.sleep(0.2)

    async def _beat(self, address: str) -> None:
        header = BrokerHeartbeatRequestHeader(
            cluster_name=CLUSTER, broker_name=GROUP, broker_id=self.broker_id, broker_addr=self._address, epoch=1,
            max_offset=100, heartbeat_timeout_mills=_BEAT_LIMIT_MS,
        )  # fmt: skip
        while True:
            await self._ask(address, RequestCode.BROKER_HEARTBEAT, header, timeout_s=1.0)
            await asyncio.sleep(_BEAT_S)

    async def _ask(
        self, address: str, code: RequestCode, header: Header, body: bytes = b"", timeout_s: float = _TIMEOUT_S
    ) -> ReceivedResponse | None:
        assert self._client is not None
        try:
            answer = await self._client.invoke(address, code, header, body, timeout_s=timeout_s)
        except (ClientError, ProtocolError):
            self._leader = ""
            return None
        if code != RequestCode.BROKER_HEARTBEAT:
            self._leader = "" if answer.code == ResponseCode.CONTROLLER_NOT_LEADER else address
        return answer

    def _anyone(self) -> str:
        """Return a controller to ask: often the one that answered last."""
        if self._leader and self._rng.random() < 0.8:
            return self._leader
        return self._rng.choice(self._addresses)

    # What is written down

    async def _read(self) -> None:
        made = self._now
        answer = await self._ask(
            self._anyone(),
            RequestCode.CONTROLLER_GET_REPLICA_INFO,
            GetReplicaInfoRequestHeader(broker_name=GROUP),
        )
        if answer is None or answer.code != ResponseCode.SUCCESS:
            self._count("read", answer)
            return
        header, told = answer.header(GetReplicaInfoResponseHeader), loads(answer.body, SyncStateSet)
        self._seen = View(
            header.master_broker_id, header.master_epoch or 0, tuple(sorted(told.sync_state_set)),
            told.sync_state_set_epoch,
        )  # fmt: skip
        self._note("read", made, answer, Read(), lambda _: self._seen)

    async def _alter(self) -> None:
        seen = self._seen
        if seen.master_id is None:
            return
        wanted = {one for one in (1, 2, 3) if self._rng.random() < 0.6}
        if self._rng.random() < 0.9:
            wanted.add(seen.master_id)
        ids = tuple(sorted(wanted))
        header = AlterSyncStateSetRequestHeader(
            broker_name=GROUP, master_broker_id=seen.master_id, master_epoch=seen.master_epoch
        )
        made = self._now
        answer = await self._ask(
            self._anyone(), RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header,
            dumps(SyncStateSet(list(ids), seen.set_epoch)),
        )  # fmt: skip
        self._note("alter", made, answer, Alter(seen, ids), lambda told: told.code)

    async def _elect(self) -> None:
        is_designated = self._rng.random() < 0.7
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER, broker_name=GROUP, broker_id=self.broker_id, designate_elect=is_designated
        )
        made = self._now
        answer = await self._ask(self._anyone(), RequestCode.CONTROLLER_ELECT_MASTER, header)

        def told(answer: ReceivedResponse) -> tuple[int, View | None]:
            if answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
                return answer.code, None
            found = answer.header(ElectMasterResponseHeader)
            view = View(found.master_broker_id, found.master_epoch or 0, (), found.sync_state_set_epoch or 0)
            return answer.code, view

        self._note("elect", made, answer, Elect(self.broker_id), told)

    def _note(
        self,
        kind: str,
        made: float,
        answer: ReceivedResponse | None,
        asked: object,
        told: Callable[[ReceivedResponse], object],
    ) -> None:
        self._count(kind, answer)
        if answer is not None and answer.code in _NOTHING:
            return
        if answer is None or answer.code in _OTHERS:
            self.history.append(Call(made, inf, asked))
            return
        self.history.append(Call(made, self._now, asked, told(answer)))

    def _count(self, kind: str, answer: ReceivedResponse | None) -> None:
        outcome = "lost" if answer is None else ResponseCode(answer.code).name
        self.answers[f"{kind} {outcome}"] = self.answers.get(f"{kind} {outcome}", 0) + 1

    @property
    def _now(self) -> float:
        return self.machine.scheduler.now
