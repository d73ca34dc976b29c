"""Requests of operators: metadata of the controllers, replicas of groups, clean-up, configuration.

Source: RocketMQ 5.3.3, `ControllerRequestProcessor`, `DLedgerController.getControllerMetadata`.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from controller.config import ControllerConfig
from controller.processor.brokers import check_names
from controller.replica_service import ReplicaService
from controller.state.commands import AdoptGroup
from controller.state.group import Group
from ha.raft.consensus import Consensus
from sprocket.common import limits
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from sprocket.remoting.bodies.requests import read_broker_group, read_broker_names
from sprocket.remoting.codec.fastjson import dumps, in_steps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ForgetControllerRequestHeader,
    GetMetaDataResponseHeader,
)
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps
from sprocket.remoting.serving.own_configuration import OwnConfiguration

logger = logging.getLogger(__name__)

# Groups that one step describes; a group may have `limits.MAX_GROUP_REPLICAS` replicas.
_STEP_GROUPS: Final = 4


class OperatorProcessor:
    """Handler of operators' requests."""

    def __init__(self, service: ReplicaService, consensus: Consensus, settings: LiveSettings[ControllerConfig]) -> None:
        self._service = service
        self._consensus = consensus
        self._settings = settings
        self._own = OwnConfiguration(settings, logger)

    def routes(self) -> list[Route]:
        """Return the routes of this processor."""
        code, cluster, get, update = RequestCode, Resource.CLUSTER, Action.GET, Action.UPDATE
        return [
            Route(code.CONTROLLER_GET_METADATA_INFO, NoHeader, self.metadata, cluster, get),
            Route(code.CONTROLLER_GET_SYNC_STATE_DATA, NoHeader, self.sync_state_data, cluster, get),
            *self._own.routes(code.GET_CONTROLLER_CONFIG, code.UPDATE_CONTROLLER_CONFIG),
            Route(code.CLEAN_BROKER_DATA, CleanControllerBrokerDataRequestHeader, self.clean, cluster, update),
            Route(code.FORGET_CONTROLLER, ForgetControllerRequestHeader, self.forget, cluster, update),
            Route(code.ADOPT_BROKER_GROUP, NoHeader, self.adopt, cluster, update),
        ]

    def metadata(self, request: Request[Any]) -> Response:
        """Return the group of controllers and its leader, as this controller knows them."""
        config = self._settings.current
        addresses = {peer.id: f"{peer.host}:{peer.port}" for peer in config.peers}
        leader = self._consensus.leader
        return Response(
            header=GetMetaDataResponseHeader(
                group=config.controller_dleger_group,
                controller_leader_id=leader,
                controller_leader_address=None if leader is None else addresses.get(leader),
                is_leader=self._consensus.is_leader,
                peers="".join(f"{peer_id}:{address};" for peer_id, address in addresses.items()),
            )
        )

    async def sync_state_data(self, request: Request[Any]) -> Steps:
        """Return the replicas of groups, in sync and not; unknown groups are left out."""
        names = read_broker_names(request.body)
        if not names:
            raise RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, "name at least one broker")
        groups = await self._service.groups(dict.fromkeys(names))
        return self._all_replicas(groups)

    def _all_replicas(self, groups: Sequence[Group]) -> Steps:
        pairs = ((group.name, self._replicas(group)) for group in groups)
        table = yield from in_steps(pairs, dict, step_items=_STEP_GROUPS)
        return Response(body=dumps(BrokerReplicasInfo(table)))

    def _replicas(self, group: Group) -> ReplicasInfo:
        info = ReplicasInfo(
            group.master_id,
            group.address_of(group.master_id),
            group.master_epoch,
            group.sync_state_set_epoch,
            [],
            [],
        )
        for replica in group.replicas:
            is_live = self._service.is_live(group, replica.broker_id)
            shown = ReplicaIdentity(group.name, replica.broker_id, replica.address, is_live)
            is_in_sync = replica.broker_id in group.sync_state_set
            (info.in_sync_replicas if is_in_sync else info.not_in_sync_replicas).append(shown)
        return info

    async def clean(self, request: Request[CleanControllerBrokerDataRequestHeader]) -> Response:
        """Forget brokers of a group."""
        header = request.header
        ids = _broker_ids(header.broker_controller_ids_to_clean or "")
        outcome = await self._service.clean_broker_data(
            header.cluster_name or "", header.broker_name, ids, includes_living=header.is_clean_living_broker
        )
        if outcome.code == ResponseCode.SUCCESS:
            peer = request.channel.peer
            peer_lines.info(
                logger, request.channel.peer, "event=broker_data_cleaned group=%s ids=%s peer=%s:%s",
                header.broker_name, ids, *peer,
            )  # fmt: skip
        return Response(outcome.code, outcome.remark)

    async def forget(self, request: Request[ForgetControllerRequestHeader]) -> Response:
        """Let a controller that lost its disk come back with an empty one."""
        controller_id = request.header.controller_id
        await self._service.forget_controller(controller_id)
        peer_lines.warning(
            logger, request.channel.peer, "event=controller_forgotten id=%s peer=%s:%s", controller_id,
            *request.channel.peer,
        )  # fmt: skip
        return Response()

    async def adopt(self, request: Request[Any]) -> Response:
        """Take over a group from other controllers, which must have been stopped."""
        asked = read_broker_group(request.body)
        check_names(asked.cluster_name, asked.broker_name, *asked.brokers.values())
        command = AdoptGroup(
            name=asked.broker_name,
            cluster=asked.cluster_name,
            next_broker_id=asked.next_broker_id,
            brokers=tuple(sorted(asked.brokers.items())),
            master_id=asked.master_broker_id,
            master_epoch=asked.master_epoch,
            sync_state_set_epoch=asked.sync_state_set_epoch,
        )
        outcome = await self._service.adopt(command)
        if outcome.code == ResponseCode.SUCCESS:
            peer = request.channel.peer
            peer_lines.warning(
                logger, request.channel.peer, "event=group_adopted group=%s master=%d peer=%s:%s", command.name,
                command.master_id, *peer,
            )  # fmt: skip
        return Response(outcome.code, outcome.remark)


def _broker_ids(text: str) -> tuple[int, ...]:
    """Return the ids in ``1;2;3``.  Raises RequestError."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if len(parts) > limits.MAX_GROUP_REPLICAS:
        raise RequestError(code, f"{len(parts)} broker ids, the limit is {limits.MAX_GROUP_REPLICAS}")
    if any(not part.isascii() or not part.isdigit() or len(part) > 18 for part in parts):
        says = "Please set the option <brokerControllerIdsToClean> according to the format: 1;2;3"
        raise RequestError(code, says)
    return tuple(int(part) for part in parts)
