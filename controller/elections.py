"""Elections, one at a time in each group, of two kinds.

A group whose master has leases gets an exact election: no message is acknowledged after the end of the lease, so what
its replicas say of their logs after that stays true.  A group of RocketMQ's brokers gets RocketMQ's election, at once
and by the offsets of the last heartbeats.  See docs/decisions/043-leases.md.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from controller.live_brokers import UNKNOWN
from controller.replica_service import ReplicaService
from controller.state.commands import LiveReplica, Outcome
from controller.state.group import Group
from sprocket.common.errors import ClientError, ProtocolError, RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.controller import EpochEntryCache
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode

logger = logging.getLogger(__name__)

# How often a lost master is looked for while its lease runs out: it may be back.
_STEP_S: Final = 0.05
# Limit on connecting to a replica and on its answer.
_ANSWER_S: Final = 0.5
# A replica that an operator chose gets the end of the old master's log within this time, if it gets it at all.
_DESIGNATED_TRIES: Final = 5
_DESIGNATED_PAUSE_S: Final = 0.1
# A broker's id in its answer while it is the master (`MixAll.MASTER_ID`).
_MASTER_ID: Final = 0


class Elections:
    """Elections of one controller.  `client` reaches brokers; it belongs to the caller."""

    def __init__(self, service: ReplicaService, client: RemotingClient) -> None:
        self._service = service
        self._client = client
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def elect(self, name: str, cluster: str, broker_id: int | None, *, is_designated: bool) -> Outcome:
        """Elect a master of the group `name`; `broker_id` is None if the controller itself asks.

        Waits for the end of the master's lease.  Raises RequestError.
        """
        if self._is_led(name, is_designated):
            return await self._at_once(name, cluster, broker_id, is_designated)
        async with self._alone(name):
            return await self._elect(name, cluster, broker_id, is_designated)

    async def _elect(self, name: str, cluster: str, broker_id: int | None, is_designated: bool) -> Outcome:
        tries = _DESIGNATED_TRIES if is_designated else 1
        while True:
            group = self._service.known_group(name)
            if group is None or group.required_acks is None or (cluster and cluster != group.cluster):
                return await self._at_once(name, cluster, broker_id, is_designated)
            if self._is_led(name, is_designated):
                return await self._at_once(name, cluster, broker_id, is_designated)
            if not self._service.is_leader:
                raise RequestError(ResponseCode.CONTROLLER_NOT_LEADER, "The controller is not in leader state")
            wait_ms = self._service.lease_wait_ms(group)
            if wait_ms > 0:
                await asyncio.sleep(min(wait_ms / 1000, _STEP_S))
                continue
            answers = await self._ask(group)
            outcome = await self._service.elect_exactly(group, answers, broker_id, is_designated=is_designated)
            tries -= 1
            if outcome.code != ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE or not tries:
                return outcome
            await asyncio.sleep(_DESIGNATED_PAUSE_S)

    def _is_led(self, name: str, is_designated: bool) -> bool:
        """Return whether the group has a master with leases that is alive, and nobody wants another one."""
        group = self._service.known_group(name)
        if group is None or group.required_acks is None or is_designated:
            return False
        return self._service.master_may_live(group)

    async def _at_once(self, name: str, cluster: str, broker_id: int | None, is_designated: bool) -> Outcome:
        return await self._service.elect_master(name, cluster, broker_id, is_designated=is_designated)

    @asynccontextmanager
    async def _alone(self, name: str) -> AsyncIterator[None]:
        """Hold the only election of a group.  Its master gets no lease meanwhile."""
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = lock, users + 1
        try:
            async with lock:
                self._service.electing.add(name)
                try:
                    yield
                finally:
                    self._service.electing.discard(name)
        finally:
            _, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = lock, users - 1

    async def _ask(self, group: Group) -> tuple[LiveReplica, ...]:
        """Return the replicas that are alive and answered, with the ends of their logs."""
        found = await asyncio.gather(*(self._ask_one(group, one) for one in self._service.live_replicas(group)))
        answers = tuple(one for one in found if one is not None)
        peer_lines.info(
            logger, "", "event=replicas_asked group=%s sync_state_set=%s needed=%d answers=%s",
            group.name, list(group.sync_state_set), group.answers_needed, _shown(answers),
        )  # fmt: skip
        return answers

    async def _ask_one(self, group: Group, replica: LiveReplica) -> LiveReplica | None:
        address = group.address_of(replica.broker_id) or replica.address
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await self._client.invoke(address, RequestCode.GET_BROKER_EPOCH_CACHE, timeout_s=_ANSWER_S)
            if answer.code != ResponseCode.SUCCESS:
                raise ProtocolError("epochs", f"code {answer.code}: {answer.remark}")
            cache = loads(answer.body, EpochEntryCache)
            expected = group.cluster, group.name, replica.broker_id
            said = cache.cluster_name, cache.broker_name, cache.broker_id
            if said[:2] != expected[:2] or said[2] not in (replica.broker_id, _MASTER_ID):
                raise ProtocolError("epochs", f"broker {said} answers there, not {expected}")
        except (ClientError, ProtocolError, TimeoutError, msgspec.MsgspecError) as error:
            peer_lines.warning(
                logger, address, "event=replica_not_asked group=%s addr=%s cause=%r", group.name, address, str(error)
            )
            return None
        epoch = cache.epoch_list[-1].epoch if cache.epoch_list else UNKNOWN
        return msgspec.structs.replace(replica, epoch=epoch, max_offset=cache.max_offset)


def _shown(answers: Iterable[LiveReplica]) -> str:
    return ", ".join(f"{one.broker_id}: epoch {one.epoch} end {one.max_offset}" for one in answers)
