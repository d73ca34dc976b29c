"""A name server on a free port, for the tests of this folder."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from tests.clock import ManualClock
from tests.loop_syncs import loop_syncs
from tests.namesrv.reports import body, header

WAIT_S = 60.0


class Site:
    """A name server, a clock that the test turns, and the connections to it."""

    def __init__(self, tmp_path: Path, changes: dict[str, Any], clock: Clock | None = None) -> None:
        self.clock = ManualClock()
        self.kv_config_path = tmp_path / "kvConfig.json"
        config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=self.kv_config_path, **changes)
        self.server = NameServer(config, clock=clock or self.clock)
        self.clients: list[RemotingClient] = []
        self.client = self.connection()

    def connection(self) -> RemotingClient:
        self.clients.append(RemotingClient())
        return self.clients[-1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def ask(
        self,
        code: RequestCode,
        of: Header | None = None,
        content: bytes = b"",
        expect: ResponseCode = ResponseCode.SUCCESS,
        by: RemotingClient | None = None,
    ) -> ReceivedResponse:
        response = await (by or self.client).invoke(self.address, code, of, content, timeout_s=WAIT_S)
        assert response.code == expect, response.remark
        return response

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

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def site_at(tmp_path: Path, **changes: Any) -> AsyncIterator[Site]:
    site = Site(tmp_path, changes)
    await site.server.start()
    try:
        with loop_syncs() as syncs:
            yield site
    finally:
        for client in site.clients:
            await client.close()
        await site.server.stop()
    assert not syncs, "\n".join(syncs)
