"""Forwarder of remoting requests to the master that they are about, and of the answers to the client.

A body passes as it is.  A request costs one future and no task, once its broker is connected.
Source: RocketMQ 5.3.3, `AbstractRemotingActivity`.  Different here: clients that name no broker (before 4.9.3, and
most languages but Java) are served too, if only one broker has the topic.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from acl.gate import PROVEN_ACCOUNT
from proxy.brokers.brokers import Brokers
from proxy.brokers.caller_connections import Caller
from proxy.remoting.topic_routes import TopicRoutes
from proxy.status import Refusal as GrpcRefusal
from sprocket.client.errors import ClientError, TopicNotFound
from sprocket.common import limits
from sprocket.common.errors import RequestError, SprocketError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.route import MASTER_ID, TopicRouteData
from sprocket.remoting.bodies.topic_queue_mapping import LOGICAL_BROKER
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.frames import encode_response

logger = logging.getLogger(__name__)

Fields = Mapping[str, str]
# Requests of one connection that wait for a broker.
MAX_WAITING: Final = 8192
_MAX_DIGITS: Final = len(str(limits.MAX_TOPIC_QUEUES))
_WAITING: Final = "forwarded"
_SENDS: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})


class Forwarder:
    """Forwarder over the proxy's connections; `spawn` runs work until the proxy ends."""

    def __init__(
        self,
        brokers: Brokers,
        topics: TopicRoutes,
        cluster: str,
        max_in_flight_bytes: int,
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._brokers = brokers
        self._topics = topics
        self._cluster = cluster
        self._max_in_flight_bytes = max_in_flight_bytes
        self._spawn = spawn
        self.in_flight_bytes = 0

    def forward(
        self,
        request: Request[Any],
        timeout_s: float,
        *,
        fields: Fields | None = None,
        broker_name: str | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send `request` to its broker, and its answer to the client.  Raises RequestError above the limits.

        `fields` replace those of the request.  If they do not name the broker, `broker_name` or `queue` does.
        """
        fields = request.header if fields is None else fields
        name = broker_name or self.broker_of(request.code, fields)
        instance = self._brokers.instance
        if queue is not None:
            name = queue.broker_name
        if name == LOGICAL_BROKER:
            queue = queue or _named_queue(request.code, fields)
            route = instance.cached_route(queue.topic)
            name = LOGICAL_BROKER if route is None else route.broker_of(queue)
        self._enter(request)
        address = None if name is None else instance.master_address(name)
        caller = caller_of(request.channel)
        channel = None if address is None else self._brokers.callers.open_channel(address, caller)
        if channel is None:
            self._spawn(self._forward_later(request, fields, name, queue, timeout_s))
        else:
            self._pass_on(channel, request, fields, timeout_s)

    def broker_of(self, code: int, fields: Fields) -> str | None:
        """Return the broker that a request names, else the only one of its topic, if clients were told of one alone."""
        return named_broker(code, fields) or self._known_only_broker(code, fields)

    def _enter(self, request: Request[Any]) -> None:
        attributes = request.channel.attributes
        waiting = attributes.get(_WAITING, 0)
        if waiting >= MAX_WAITING:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"{waiting} requests of this connection wait for brokers, send fewer at once",
                Reason.BUSY,
            )  # fmt: skip
        size = len(request.body)
        if self.in_flight_bytes and self.in_flight_bytes + size > self._max_in_flight_bytes:
            raise RequestError(ResponseCode.SYSTEM_BUSY, "flow limit (grpcMaxInFlightSize): send later", Reason.BUSY)
        attributes[_WAITING] = waiting + 1
        self.in_flight_bytes += size

    def _leave(self, request: Request[Any]) -> None:
        request.channel.attributes[_WAITING] -= 1
        self.in_flight_bytes -= len(request.body)

    def _pass_on(self, channel: RemotingChannel, request: Request[Any], fields: Fields, timeout_s: float) -> None:
        try:
            future = channel.forward(request, fields, timeout_s=timeout_s)
        except ClientError as error:
            self._leave(request)
            request.channel.refuse(request, error)
            return
        if future is None:
            self._leave(request)
        else:
            future.add_done_callback(partial(self._answered, request))

    def _answered(self, request: Request[Any], future: "asyncio.Future[ReceivedResponse]") -> None:
        self._leave(request)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            request.channel.refuse(request, error if isinstance(error, Exception) else ClientError(str(error)))
            return
        found = future.result()
        if found.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
            self._moved(request)
        elif found.code == ResponseCode.FLOW_CONTROL:
            channel = request.channel
            channel.read_after(self._brokers.slowed.refused(caller_of(channel), channel.peer))
        if request.wants_answer:
            response = Response(found.code, found.remark, found.ext_fields, found.body)
            request.channel.answer(request, *encode_response(response, request.opaque, request.serialization))

    def _moved(self, request: Request[Any]) -> None:
        """Ask the name servers again where a logical queue is; the client will do so, too."""
        topic = named_topic(request.code, request.header)
        if topic is not None:
            self._topics.forget(topic)
            self._brokers.instance.request_refresh(topic)

    async def _forward_later(
        self, request: Request[Any], fields: Fields, name: str | None, queue: MessageQueue | None, timeout_s: float
    ) -> None:
        try:
            if name == LOGICAL_BROKER and queue is not None:
                name = (await self._brokers.route(queue.topic)).broker_of(queue)
            channel = await self.channel_of(name, request.code, fields, caller_of(request.channel))
        except (SprocketError, GrpcRefusal) as error:
            self._leave(request)
            request.channel.refuse(request, error)
            return
        except BaseException:
            self._leave(request)
            raise
        self._pass_on(channel, request, fields, timeout_s)

    async def channel_of(
        self, name: str | None, code: int, fields: Fields, caller: Caller | None = None
    ) -> RemotingChannel:
        """Return the connection of `caller` to a broker, or to the only broker of the topic if no broker is named.

        Raises RequestError, ClientError.
        """
        topic = named_topic(code, fields)
        instance = self._brokers.instance
        if name is None:
            name = await self._only_broker(topic)
        # Each broker has a topic of its own name, so that it is found without the topic of the request.
        is_known = instance.master_address(name) is not None or await self._brokers.is_known(name, name)
        if not is_known and topic is not None:
            is_known = await self._brokers.is_known(name, topic)
        address = instance.master_address(name) if is_known else None
        if address is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"there is no broker {name!r:.100}", Reason.SERVICE_NOT_AVAILABLE
            )
        return await self._brokers.callers.channel(address, caller)

    def _known_only_broker(self, code: int, fields: Fields) -> str | None:
        """Return the only broker of the topic that a request names, if clients were told of one alone."""
        topic = named_topic(code, fields)
        data = None if topic is None else self._topics.known(topic)
        names = [] if data is None else _masters(data)
        return names[0] if len(names) == 1 else None

    async def _only_broker(self, topic: str | None) -> str:
        names: list[str] = []
        for name in filter(None, (topic, self._cluster)):
            try:
                names = _masters(await self._topics.get(name))
                break
            except TopicNotFound:
                # A topic that its first send creates: any broker of the cluster may take it.
                continue
        if len(names) != 1:
            raise RequestError(
                ResponseCode.VERSION_NOT_SUPPORTED,
                f"Request doesn't have field bname, and topic {topic} has {len(names)} brokers: use a client that "
                "names the broker, or connect it to the name server",
            )
        return names[0]


def caller_of(channel: RemotingChannel) -> Caller:
    """Return the client at a connection of the proxy."""
    return Caller(channel.attributes.get(PROVEN_ACCOUNT), channel.peer[0])


def _masters(data: TopicRouteData) -> list[str]:
    return [broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs]


def named_broker(code: int, fields: Fields) -> str | None:
    """Return the broker that a request names; None if it names none."""
    return fields.get("n") if code in _SENDS else fields.get("bname")


def _named_queue(code: int, fields: Fields) -> MessageQueue:
    """Return the logical queue that a request names.  Raises RequestError."""
    topic, number = named_topic(code, fields), fields.get("e" if code in _SENDS else "queueId") or ""
    if topic is None or not number.isdecimal() or len(number) > _MAX_DIGITS:
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"the request names no logical queue: {number!r:.40}")
    return MessageQueue(topic, LOGICAL_BROKER, int(number))


def named_topic(code: int, fields: Fields) -> str | None:
    """Return the topic that a request names; None if it names none."""
    if code in _SENDS:
        return fields.get("b")
    return fields.get("topic") or fields.get("originTopic")
