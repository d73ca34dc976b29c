"""A name server on a free port, for the tests of this folder."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.registration import RegisterBrokerBody
from sprocket.remoting.bodies.route import ClusterInfo, QueueData, TopicRouteData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from tests.in_process import ServerSite, started
from tests.namesrv.reports import body, header


class Site(ServerSite):
    """A name server, and what brokers and clients ask it."""

    server: NameServer

    def __init__(self, tmp_path: Path, changes: dict[str, Any], clock: Clock | None = None) -> None:
        super().__init__()
        self.kv_config_path = tmp_path / "kvConfig.json"
        config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=self.kv_config_path, **changes)
        self.server = NameServer(config, clock=clock or self.clock)

    async def register(
        self,
        to: RegisterBrokerRequestHeader | None = None,
        of: RegisterBrokerBody | None = None,
        by: RemotingClient | None = None,
    ) -> ReceivedResponse:
        return await self.ask(RequestCode.REGISTER_BROKER, to or header(), (of or body()).encode(False), by=by)

    async def route(self, topic: str = "t", expect: ResponseCode = ResponseCode.SUCCESS) -> ReceivedResponse:
        request = GetRouteInfoRequestHeader(topic=topic)
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, request, expect=expect)

    async def queues(self, topic: str = "t") -> list[QueueData]:
        return loads((await self.route(topic)).body, TopicRouteData).queue_datas

    async def cluster(self) -> ClusterInfo:
        return loads((await self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body, ClusterInfo)

    async def addrs(self, name: str = "broker-a") -> dict[int, str]:
        group = (await self.cluster()).broker_addr_table.get(name)
        return {} if group is None else group.broker_addrs


def site_at(tmp_path: Path, **changes: Any) -> AbstractAsyncContextManager[Site]:
    return started(Site(tmp_path, changes))
