"""Administration of controllers, and what brokers say of their epochs.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl.getControllerMetaData`, `getInSyncStateData`, `electMaster`,
`cleanControllerBrokerData`, `getControllerConfig`, `updateControllerConfig`, `getBrokerEpochCache`.
"""

from collections.abc import Mapping, Sequence

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.answers import body_of, header_of
from sprocket.common import properties
from sprocket.remoting.bodies.controller import (
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
)


class ControllerAdmin:
    """Client of controllers, given by the address of any of them.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def metadata(self, controller: str) -> GetMetaDataResponseHeader:
        """Return the group of a controller and its leader."""
        response = await self._admin.ask(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return header_of(response, GetMetaDataResponseHeader, AdminError)

    async def leader(self, controller: str) -> str:
        """Return the address of the leader of a controller's group."""
        address = (await self.metadata(controller)).controller_leader_address
        if not address:
            raise AdminError(f"{controller}: the controllers have no leader now; ask again in a few seconds")
        return address

    async def sync_state(self, controller: str, broker_names: Sequence[str]) -> Mapping[str, ReplicasInfo]:
        """Return the replicas of broker groups, by broker name; unknown groups are left out."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        response = await self._admin.ask(await self.leader(controller), code, body=dumps(list(broker_names)))
        return body_of(response.body, BrokerReplicasInfo, AdminError).replicas_info_table

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

    async def config(self, controller: str) -> dict[str, str]:
        """Return the configuration of one controller."""
        response = await self._admin.ask(controller, RequestCode.GET_CONTROLLER_CONFIG)
        return {entry.key: entry.value for entry in properties.parse(response.body, controller)}

    async def update_config(self, controller: str, values: Mapping[str, str]) -> None:
        """Change keys of the configuration of one controller."""
        body = properties.render(dict(values)).encode()
        await self._admin.ask(controller, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)

    async def epochs(self, broker: str) -> EpochEntryCache:
        """Return the epochs of a broker's log."""
        response = await self._admin.ask(broker, RequestCode.GET_BROKER_EPOCH_CACHE)
        return body_of(response.body, EpochEntryCache, AdminError)
