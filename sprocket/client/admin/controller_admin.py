"""Administration of controllers, and what brokers say of their epochs.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl.getControllerMetaData`, `getInSyncStateData`, `electMaster`,
`cleanControllerBrokerData`, `getControllerConfig`, `updateControllerConfig`, `getBrokerEpochCache`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.answers import body_of, header_of
from sprocket.remoting.bodies.controller import (
    BrokerGroupState,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    EpochEntryCache,
    ReplicasInfo,
)
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    ForgetControllerRequestHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
)

# How much later the epochs of an adopted group are than those of the controllers before.
ADOPTED_EPOCHS: Final = 1000
# A broker's id in its answer while it is the master (`MixAll.MASTER_ID`).
MASTER_ID: Final = 0


class ControllerAdmin:
    """Client of controllers, given by the address of any of them.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def metadata(self, controller: str) -> GetMetaDataResponseHeader:
        """Return the group of a controller and its leader."""
        return await self._admin.ask_header(
            controller, RequestCode.CONTROLLER_GET_METADATA_INFO, GetMetaDataResponseHeader
        )

    async def leader(self, controller: str) -> str:
        """Return the address of the leader of a controller's group."""
        address = (await self.metadata(controller)).controller_leader_address
        if not address:
            raise AdminError(f"{controller}: the controllers have no leader now; ask again in a few seconds")
        return address

    async def sync_state(self, controller: str, broker_names: Sequence[str]) -> Mapping[str, ReplicasInfo]:
        """Return the replicas of broker groups, by broker name; unknown groups are left out."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        answer = await self._admin.ask_body(
            await self.leader(controller), code, BrokerReplicasInfo, body=dumps(list(broker_names))
        )
        return answer.replicas_info_table

    async def elect_master(
        self, controller: str, cluster: str, broker_name: str, broker_id: int
    ) -> tuple[ElectMasterResponseHeader, ElectMasterResponseBody]:
        """Make a broker the master of its group.  Return the master and the group."""
        header = ElectMasterRequestHeader(
            cluster_name=cluster, broker_name=broker_name, broker_id=broker_id, designate_elect=True
        )
        leader = await self.leader(controller)
        response = await self._admin.ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, header)
        body = body_of(response.body, ElectMasterResponseBody, AdminError)
        return header_of(response, ElectMasterResponseHeader, AdminError), body

    async def clean_broker_data(
        self, controller: str, cluster: str | None, broker_name: str, broker_ids: str | None, *, living: bool
    ) -> None:
        """Have the controllers forget brokers; `broker_ids` is ``1;2;3``, None for the whole group."""
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=broker_name,
            broker_controller_ids_to_clean=broker_ids,
            is_clean_living_broker=living,
        )
        await self._admin.ask(await self.leader(controller), RequestCode.CLEAN_BROKER_DATA, header)

    async def forget_controller(self, controller: str, controller_id: str) -> None:
        """Let a controller that lost its disk come back with an empty one.  Sprocket's own request."""
        header = ForgetControllerRequestHeader(controller_id=controller_id)
        await self._admin.ask(await self.leader(controller), RequestCode.FORGET_CONTROLLER, header)

    async def group_state(self, controller: str, broker_name: str) -> BrokerGroupState:
        """Return what controllers know of a group, those of RocketMQ too.  Raises AdminError without a master."""
        found = (await self.sync_state(controller, [broker_name])).get(broker_name)
        if found is None or found.master_broker_id is None or not found.master_address:
            raise AdminError(f"{controller}: the group {broker_name} is not known there, or has no master now")
        members = {one.broker_id: one.broker_address for one in (*found.in_sync_replicas, *found.not_in_sync_replicas)}
        cluster = (await self.epochs(found.master_address)).cluster_name
        header = GetNextBrokerIdRequestHeader(cluster_name=cluster, broker_name=broker_name)
        code = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
        answer = await self._admin.ask(await self.leader(controller), code, header)
        next_id = header_of(answer, GetNextBrokerIdResponseHeader, AdminError).next_broker_id
        return BrokerGroupState(
            cluster_name=cluster,
            broker_name=broker_name,
            brokers=members,
            next_broker_id=max([next_id or 0, *(one + 1 for one in members)]),
            master_broker_id=found.master_broker_id,
            master_epoch=found.master_epoch,
            sync_state_set_epoch=found.sync_state_set_epoch,
        )

    async def adopt(self, controller: str, group: BrokerGroupState) -> None:
        """Have the controllers take over a group from those that knew it so.  Sprocket's own request.

        The other controllers must have been stopped.  The brokers are asked whether that is still how things are.
        """
        await self._check_roles(group)
        group = msgspec.structs.replace(
            group,
            # Above what the brokers may have learned after the export.
            master_epoch=group.master_epoch + ADOPTED_EPOCHS,
            sync_state_set_epoch=group.sync_state_set_epoch + ADOPTED_EPOCHS,
        )
        leader = await self.leader(controller)
        await self._admin.ask(leader, RequestCode.ADOPT_BROKER_GROUP, body=dumps(group))

    async def _check_roles(self, group: BrokerGroupState) -> None:
        """Raise AdminError unless the master of `group` is still the only one, and no broker knows a later epoch."""
        master = group.master_broker_id
        again = "start the old controllers, wait until the group has one master, and export again"
        for broker_id, address in sorted(group.brokers.items()):
            try:
                said = await self.epochs(address)
            except AdminError as error:
                if broker_id == master:
                    raise AdminError(f"the master of {group.broker_name} does not answer: {error}; {again}") from None
                continue
            here = f"the broker {broker_id} of {group.broker_name} at {address}"
            if (said.cluster_name, said.broker_name) != (group.cluster_name, group.broker_name):
                raise AdminError(f"{here} is {said.cluster_name}/{said.broker_name} now; {again}")
            if (said.broker_id == MASTER_ID) != (broker_id == master):
                raise AdminError(f"{here} has changed its role since the export; {again}")
            if said.epoch_list and said.epoch_list[-1].epoch > group.master_epoch:
                raise AdminError(f"{here} knows the epoch {said.epoch_list[-1].epoch}; {again}")

    async def config(self, controller: str) -> dict[str, str]:
        """Return the configuration of one controller."""
        return await self._admin.config_at(controller, RequestCode.GET_CONTROLLER_CONFIG)

    async def update_config(self, controller: str, changes: Mapping[str, str]) -> str | None:
        """Change keys of one controller, all or none.  Return its note.  Raises as `update_broker_config`."""
        return await self._admin.update_config_at(controller, RequestCode.UPDATE_CONTROLLER_CONFIG, changes)

    async def epochs(self, broker: str) -> EpochEntryCache:
        """Return the epochs of a broker's log."""
        return await self._admin.ask_body(broker, RequestCode.GET_BROKER_EPOCH_CACHE, EpochEntryCache)
