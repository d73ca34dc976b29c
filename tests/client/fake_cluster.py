"""A name server and brokers that do what a test tells them to, on real sockets."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import HeartbeatRequestHeader, UnregisterClientRequestHeader
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from sprocket.remoting.routes import Action, Resource, Route, RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings

Answer = Callable[[Request[Any]], Response | Awaitable[Response | None] | None]


def route(code: RequestCode, header: type, handle: Any) -> Route:
    return Route(code, header, handle, Resource.NONE, Action.NONE)


class FakeServer:
    """A server of the given routes; an async context manager."""

    def __init__(self, routes: list[Route], port: int = 0) -> None:
        self._server = RemotingServer(RouteTable(routes), ConnectionSettings("127.0.0.1"), port=port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    async def __aenter__(self) -> Any:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def drop_connections(self) -> None:
        for channel in list(self._server.channels.values()):
            channel.close()


class FakeNameServer(FakeServer):
    """Answers with `topics`, and by `routes`; says nothing at all while `is_silent`."""

    def __init__(self, routes: list[Route] | None = None) -> None:
        own = route(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader, self._route)
        super().__init__([own, *(routes or [])])
        self.topics: dict[str, TopicRouteData] = {}
        self.asked: list[str] = []
        self.is_silent = False

    def _route(self, request: Request[GetRouteInfoRequestHeader]) -> Response | None:
        self.asked.append(request.header.topic)
        if self.is_silent:
            return None
        data = self.topics.get(request.header.topic)
        if data is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, "No topic route info in name server")
        return Response(body=dumps(data))


class FakeBroker(FakeServer):
    """Takes sends.  `script` holds answers for the next ones; without it every send succeeds.  `routes` are more."""

    def __init__(self, name: str, port: int = 0, routes: list[Route] | None = None) -> None:
        super().__init__(
            [
                route(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, self._send),
                route(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2, self._send),
                route(RequestCode.HEART_BEAT, HeartbeatRequestHeader, self._heartbeat),
                route(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader, self._unregister),
                *(routes or []),
            ],
            port,
        )
        self.name = name
        self.script: deque[Answer] = deque()
        self.taken: list[Request[SendMessageRequestHeaderV2]] = []
        self.heartbeats: list[bytes] = []
        self.unregistered: list[UnregisterClientRequestHeader] = []

    def _send(self, request: Request[SendMessageRequestHeaderV2]) -> Any:
        if self.script:
            return self.script.popleft()(request)
        return self.accept(request)

    def accept(self, request: Request[SendMessageRequestHeaderV2]) -> Response:
        self.taken.append(request)
        offset = len(self.taken) - 1
        return Response(
            header=SendMessageResponseHeader(msg_id="00", queue_id=request.header.queue_id, queue_offset=offset)
        )

    def _heartbeat(self, request: Request[HeartbeatRequestHeader]) -> Response:
        self.heartbeats.append(request.body)
        return Response()

    def _unregister(self, request: Request[UnregisterClientRequestHeader]) -> Response:
        self.unregistered.append(request.header)
        return Response()


def topic_data(*brokers: FakeBroker | tuple[str, str], queues: int = 1) -> TopicRouteData:
    """The route of a topic that lies on `brokers`, each a fake one or (name, address)."""
    pairs = [(broker.name, broker.address) if isinstance(broker, FakeBroker) else broker for broker in brokers]
    return TopicRouteData(
        queue_datas=[QueueData(name, queues, queues, 6) for name, _ in pairs],
        broker_datas=[BrokerData("c", name, {0: address}) for name, address in pairs],
    )


def refuse(code: ResponseCode) -> Answer:
    return lambda request: Response(code, "scripted")


def hang_up(request: Request[Any]) -> None:
    """The broker dies before it answers."""
    request.channel.close()


def client_tasks(before: set[asyncio.Task[Any]]) -> list[str]:
    """The tasks that have come since `before`, without those of a server."""
    new = asyncio.all_tasks() - before
    return [task.get_coro().__qualname__ for task in new if task.get_coro().__qualname__.startswith("ClientInstance")]
