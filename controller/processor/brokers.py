"""Requests of brokers: ids, registration, heartbeats, sync-state sets, elections.

Source: RocketMQ 5.3.3, `ControllerRequestProcessor`, `ReplicasInfoManager`.
"""

from typing import Final

from controller.failover import Failover
from controller.live_brokers import DEFAULT_TIMEOUT_MS, LOWEST_PRIORITY, UNKNOWN, Heartbeat
from controller.replica_service import ReplicaService
from controller.state.commands import Outcome
from controller.state.decisions import NOBODY
from controller.state.group import FIRST_BROKER_ID, Group
from sprocket.common import limits
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from sprocket.remoting.bodies.requests import read_sync_state_set
from sprocket.remoting.bodies.route import BrokerMemberGroup
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from sprocket.remoting.headers.namesrv import BrokerHeartbeatRequestHeader, BrokerHeartbeatResponseHeader
from sprocket.remoting.routes import Action, Resource, Route

_SHORTEST_TIMEOUT_MS: Final = 1
# A master that asks for leases is lost once it has been silent for so many of them.
_SILENT_LEASES: Final = 2


class BrokerProcessor:
    """Handler of brokers' requests."""

    def __init__(self, service: ReplicaService, failover: Failover) -> None:
        self._service = service
        self._failover = failover

    def routes(self) -> list[Route]:
        """Return the routes of this processor."""
        code, cluster, get, update = RequestCode, Resource.CLUSTER, Action.GET, Action.UPDATE
        register = RegisterBrokerToControllerRequestHeader
        return [
            Route(code.CONTROLLER_ALTER_SYNC_STATE_SET, AlterSyncStateSetRequestHeader, self.alter, cluster, update),
            Route(code.CONTROLLER_ELECT_MASTER, ElectMasterRequestHeader, self.elect, cluster, update),
            Route(code.CONTROLLER_REGISTER_BROKER, register, self.register, cluster, update),
            Route(code.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader, self.replica_info, cluster, get),
            Route(code.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequestHeader, self.next_id, cluster, get),
            Route(code.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequestHeader, self.apply_id, cluster, update),
            Route(code.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader, self.heartbeat, cluster, update),
        ]

    async def alter(self, request: Request[AlterSyncStateSetRequestHeader]) -> Response:
        """Change the sync-state set of a group.  Return the new one."""
        header, wanted = request.header, read_sync_state_set(request.body)
        outcome = await self._service.alter_sync_state_set(
            header.broker_name,
            header.master_broker_id,
            header.master_epoch,
            wanted.sync_state_set,
            wanted.sync_state_set_epoch,
        )
        group = _group_of(outcome)
        epoch = group.sync_state_set_epoch
        return Response(
            header=AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=epoch), body=_sync_state_set(group)
        )

    async def elect(self, request: Request[ElectMasterRequestHeader]) -> Response:
        """Elect a master.  Return it, also if it is the old one."""
        header = request.header
        broker_id = None if header.broker_id == NOBODY else header.broker_id
        outcome = await self._failover.elections.elect(
            header.broker_name, header.cluster_name, broker_id, is_designated=header.designate_elect
        )
        group = outcome.group
        if group is None:
            raise RequestError(outcome.code, outcome.remark or "")
        is_new = outcome.code == ResponseCode.SUCCESS
        if is_new:
            self._failover.announce(group)
        members = BrokerMemberGroup(
            group.cluster, group.name, {replica.broker_id: replica.address for replica in group.replicas}
        )
        return Response(
            outcome.code,
            outcome.remark,
            ElectMasterResponseHeader(
                master_broker_id=group.master_id,
                master_address=group.address_of(group.master_id),
                master_epoch=group.master_epoch,
                sync_state_set_epoch=group.sync_state_set_epoch,
            ),
            dumps(ElectMasterResponseBody(members if is_new else None, list(group.sync_state_set))),
        )

    async def register(self, request: Request[RegisterBrokerToControllerRequestHeader]) -> Response:
        """Note where a broker is.  Return the master if one is alive."""
        header = request.header
        check_names(header.cluster_name, header.broker_name, header.broker_address)
        outcome = await self._service.register_broker(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_address
        )
        group = _group_of(outcome)
        response = RegisterBrokerToControllerResponseHeader(
            cluster_name=header.cluster_name, broker_name=header.broker_name
        )
        if self._service.master_may_live(group):
            response.master_broker_id = group.master_id
            response.master_address = group.address_of(group.master_id)
            response.master_epoch = group.master_epoch
            response.sync_state_set_epoch = group.sync_state_set_epoch
        return Response(header=response, body=_sync_state_set(group))

    async def replica_info(self, request: Request[GetReplicaInfoRequestHeader]) -> Response:
        """Return a group's master and sync-state set."""
        group = await self._service.group(request.header.broker_name)
        if group is None:
            code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
            raise RequestError(code, "Broker metadata is not existed")
        header = GetReplicaInfoResponseHeader(
            master_broker_id=group.master_id,
            master_address=group.address_of(group.master_id),
            master_epoch=group.master_epoch,
        )
        return Response(header=header, body=_sync_state_set(group))

    async def next_id(self, request: Request[GetNextBrokerIdRequestHeader]) -> Response:
        """Return the id that a new broker of the group should apply for."""
        header = request.header
        group = await self._service.group(header.broker_name)
        return Response(
            header=GetNextBrokerIdResponseHeader(
                cluster_name=header.cluster_name,
                broker_name=header.broker_name,
                next_broker_id=FIRST_BROKER_ID if group is None else group.next_broker_id,
            )
        )

    async def apply_id(self, request: Request[ApplyBrokerIdRequestHeader]) -> Response:
        """Assign a broker id, unless another broker has it."""
        asked = request.header
        address = asked.register_check_code.split(";")[0]
        check_names(asked.cluster_name, asked.broker_name, address)
        if len(asked.register_check_code) > limits.MAX_CHECK_CODE_CHARS:
            remark = f"registerCheckCode has {len(asked.register_check_code)} characters"
            raise RequestError(
                ResponseCode.CONTROLLER_INVALID_REQUEST, f"{remark}, the limit is {limits.MAX_CHECK_CODE_CHARS}"
            )
        outcome = await self._service.apply_broker_id(
            asked.cluster_name, asked.broker_name, asked.applied_broker_id, asked.register_check_code
        )
        _group_of(outcome)
        return Response(
            header=ApplyBrokerIdResponseHeader(cluster_name=asked.cluster_name, broker_name=asked.broker_name)
        )

    async def heartbeat(self, request: Request[BrokerHeartbeatRequestHeader]) -> Response:
        """Note that a broker is alive, and extend its lease.  Controllers that do not lead grant no lease."""
        header, arrived_ms = request.header, self._service.now_ms()
        if header.broker_id is None:
            raise RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        if header.required_acks is not None and not 0 <= header.required_acks <= limits.MAX_GROUP_REPLICAS:
            remark = f"requiredAcks is {header.required_acks}, allowed are 0 to {limits.MAX_GROUP_REPLICAS}"
            raise RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
        check_names(header.cluster_name, header.broker_name, header.broker_addr)
        timeout_ms = DEFAULT_TIMEOUT_MS if header.heartbeat_timeout_mills is None else header.heartbeat_timeout_mills
        if header.lease_epoch is not None:
            timeout_ms = min(timeout_ms, _SILENT_LEASES * self._service.lease_ms)
        beat = Heartbeat(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            channel_id=request.channel.id,
            timeout_ms=min(max(timeout_ms, _SHORTEST_TIMEOUT_MS), limits.MAX_HEARTBEAT_TIMEOUT_MS),
            epoch=UNKNOWN if header.epoch is None else header.epoch,
            max_offset=UNKNOWN if header.max_offset is None else header.max_offset,
            confirm_offset=UNKNOWN if header.confirm_offset is None else header.confirm_offset,
            priority=LOWEST_PRIORITY if header.election_priority is None else header.election_priority,
            resigned_epoch=UNKNOWN if header.resigned_epoch is None else header.resigned_epoch,
            asks_lease=header.lease_epoch is not None,
        )
        was_live = self._service.is_known_live(beat)
        refusal = self._service.beat(beat)
        if refusal:
            raise RequestError(ResponseCode.CONTROLLER_BROKER_ID_INVALID, refusal)
        if header.is_leaving:
            self._failover.left(beat)
        elif header.resigned_epoch is not None:
            self._failover.resigned(beat)
        elif not was_live:
            self._failover.returned(beat)
        return Response(remark="Heart beat success", header=await self._answer(header, beat, arrived_ms))

    async def _answer(
        self, header: BrokerHeartbeatRequestHeader, beat: Heartbeat, arrived_ms: int
    ) -> BrokerHeartbeatResponseHeader:
        answer = BrokerHeartbeatResponseHeader(knows_leases=True)
        if header.lease_epoch is not None and header.required_acks is not None and not header.is_leaving:
            lease_ms = await self._service.lease(beat, header.lease_epoch, header.required_acks, arrived_ms)
            answer.lease_millis = lease_ms or None
        group = self._service.known_group(beat.name)
        if group is not None and group.cluster == beat.cluster:
            answer.master_epoch = group.master_epoch
        return answer


def _group_of(outcome: Outcome) -> Group:
    """Return the group after a command.  Raises RequestError if it was refused."""
    if outcome.code != ResponseCode.SUCCESS or outcome.group is None:
        raise RequestError(outcome.code, outcome.remark or "")
    return outcome.group


def _sync_state_set(group: Group) -> bytes:
    return dumps(SyncStateSet(list(group.sync_state_set), group.sync_state_set_epoch))


def check_names(*names: str) -> None:
    """Raise RequestError for a cluster, group or address that is empty or too long."""
    for name in names:
        if not name.strip() or len(name) > limits.MAX_CONTROLLER_NAME_CHARS:
            remark = f"{name[:64]!r} is empty or longer than {limits.MAX_CONTROLLER_NAME_CHARS} characters"
            raise RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
