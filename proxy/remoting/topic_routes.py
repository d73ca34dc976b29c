"""GET_ROUTEINFO_BY_TOPIC at the proxy: the queues of a topic, and the proxy's own address for every broker.

Source: RocketMQ 5.3.3, `GetTopicRouteActivity`, `ProxyTopicRouteData`.  Without remotingAccessAddr RocketMQ names the
first address of its machine.  Here it is the address that the client connected to.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from proxy.config import ProxyConfig
from proxy.listeners import Listener
from sprocket.client.connection.name_servers import NameServers
from sprocket.client.errors import TopicNotFound
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.route import BrokerData, TopicRouteData
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.remoting.routes import Action, Answer, Resource, Route, Traffic

_MAX_ROUTES: Final = 20_000
# Ordinal of V4_9_4 in `MQVersion`: since that version clients read standard JSON.
_VERSION_4_9_4: Final = 401


class TopicRoutes:
    """Routes of topics, asked of the name servers again after topicRouteServiceCacheRefreshSeconds."""

    def __init__(self, name_servers: NameServers, config: ProxyConfig, monotonic: Callable[[], float]) -> None:
        self._name_servers = name_servers
        self._config = config
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, TopicRouteData]] = {}
        self._asking: dict[str, asyncio.Task[TopicRouteData]] = {}

    def routes(self, listener: Callable[[], Listener]) -> list[Route]:
        """Return the routes of one port."""

        def handle(request: Request[GetRouteInfoRequestHeader]) -> Answer:
            known = self.known(request.header.topic)
            if known is None:
                return self._answer_later(request, listener())
            return self._response(request, known, listener())

        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        return [Route(code, GetRouteInfoRequestHeader, handle, Resource.TOPIC, Action.GET, Traffic.CLIENT)]

    def known(self, topic: str) -> TopicRouteData | None:
        """Return what clients are told of a topic now; None if a name server must be asked."""
        known = self._known.get(topic)
        if known is None or self._monotonic() - known[0] > self._config.topic_route_service_cache_refresh_seconds:
            return None
        return known[1]

    async def get(self, topic: str) -> TopicRouteData:
        """Return what clients are told of a topic.  Raises TopicNotFound, NameServerUnreachable, BrokerRefused."""
        known = self.known(topic)
        if known is not None:
            return known
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(topic))
            self._asking[topic] = task
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(task)

    def forget(self, topic: str) -> None:
        """Ask a name server before clients are told of a topic again."""
        self._known.pop(topic, None)

    async def _answer_later(self, request: Request[GetRouteInfoRequestHeader], listener: Listener) -> Response:
        topic = request.header.topic
        try:
            return self._response(request, await self.get(topic), listener)
        except TopicNotFound:
            remark = f"No topic route info in name server for the topic: {topic}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark) from None

    async def _ask(self, topic: str) -> TopicRouteData:
        data = await self._name_servers.topic_route(topic)
        self._known.pop(topic, None)
        if len(self._known) >= _MAX_ROUTES:
            del self._known[next(iter(self._known))]
        self._known[topic] = (self._monotonic(), data)
        return data

    def _response(
        self, request: Request[GetRouteInfoRequestHeader], data: TopicRouteData, listener: Listener
    ) -> Response:
        address = self._address(request, listener)
        brokers = [
            BrokerData(found.cluster, found.broker_name, dict.fromkeys(found.broker_addrs, address), found.zone_name)
            for found in data.broker_datas
        ]
        is_standard = bool(request.header.accept_standard_json_only) or request.version >= _VERSION_4_9_4
        return Response(body=dumps(msgspec.structs.replace(data, broker_datas=brokers), standard=is_standard))

    def _address(self, request: Request[GetRouteInfoRequestHeader], listener: Listener) -> str:
        if listener.advertise is not None:
            host, port = listener.advertise
        else:
            host, port = self._config.remoting_access_addr or request.channel.local[0], listener.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
