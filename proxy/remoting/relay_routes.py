"""Requests of operators to one consumer, relayed to it: by its remoting connection, or on its telemetry stream.

An operator's tool asks at the proxy's port, or at a broker that knows the proxy as a member of the group.
Source: RocketMQ 5.3.3, `Broker2Client`, `AdminBrokerProcessor.callConsumer`, `GrpcClientChannel`, `RemotingChannel`.
RocketMQ's proxy relays them in local mode alone, where it is inside the broker.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from proxy.brokers.brokers import Brokers
from proxy.clients.commands import ClientCommands
from proxy.clients.grpc_members import grpc_client_id
from proxy.clients.members import Consumers, Member
from proxy.convert.outgoing import outgoing
from proxy.status import Refusal as GrpcRefusal
from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import ViewMessageRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.client import ConsumeMessageDirectlyRequestHeader, GetConsumerRunningInfoRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.pending import RemotingTimeout
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Resource, Route, Traffic

_TIMEOUT_S: Final = 3.0
_CALL_TIMEOUT_S: Final = 10.0
# Address and port of the broker, and the offset in its log.  Source: `MessageDecoder.createMessageId`.
_ID_BYTES: Final = 16
_ID_V6_BYTES: Final = 28
_CODES: Final = {
    wire.TOO_MANY_REQUESTS: ResponseCode.SYSTEM_BUSY,
    wire.VERIFY_FIFO_MESSAGE_UNSUPPORTED: ResponseCode.NO_PERMISSION,
}


class RelayRoutes:
    """Routes of GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY.

    `own_id` returns the client id by which brokers know the proxy; `now_ms` is the wall clock.
    """

    def __init__(
        self, consumers: Consumers, commands: ClientCommands, own_id: Callable[[], str], now_ms: Callable[[], int]
    ) -> None:
        self._own_id = own_id
        self._consumers = consumers
        self._commands = commands
        self._now_ms = now_ms

    def for_tools(self, messages: "StoredMessages") -> list[Route]:
        """Return the routes of the proxy's port: the proxy fetches the message."""
        return self._routes(messages.fetch)

    def for_brokers(self) -> list[Route]:
        """Return the routes of connections to brokers, which send the message along."""

        async def sent(request: Request[ConsumeMessageDirectlyRequestHeader]) -> bytes:
            return request.body

        return self._routes(sent)

    def _routes(self, fetch: Callable[[Request[ConsumeMessageDirectlyRequestHeader]], Awaitable[bytes]]) -> list[Route]:
        async def directly(request: Request[ConsumeMessageDirectlyRequestHeader]) -> Response:
            return await self._consume(request, await fetch(request))

        code, group = RequestCode, Resource.GROUP
        return [
            Route(
                code.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader, self.running_info,
                group, Action.GET, Traffic.ADMIN,
            ),
            Route(
                code.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, directly,
                group, Action.SUB, Traffic.ADMIN,
            ),
        ]  # fmt: skip

    async def running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Response:
        """Return the running information of a consumer; a gRPC client tells its threads alone."""
        header = request.header
        member = self._member(header.consumer_group, header.client_id)
        if member.channel is not None:
            return await _passed(member, request.code, header, request.body)
        group = self._consumers.group(header.consumer_group)
        properties: dict[str, object] = {"PROP_CONSUME_TYPE": "" if group is None else group.data.consume_type}
        found = ConsumerRunningInfo[MessageQueue](
            properties=properties, subscription_set=[] if group is None else list(group.subscriptions.values())
        )
        if header.jstack_enable:
            found.jstack = await _told(self._commands.stack_trace(grpc_client_id(member.key)))
        return Response(body=dumps(found))

    async def _consume(self, request: Request[ConsumeMessageDirectlyRequestHeader], record: bytes) -> Response:
        """Let a consumer consume one message again, and return the result."""
        header = request.header
        message = _read(record, header.broker_name or "")
        require_topic(request, message.topic, AuthAction.SUB, header.consumer_group)
        member = self._member(header.consumer_group, header.client_id or "")
        if member.channel is not None:
            return await _passed(member, request.code, header, record)
        topic = message.properties.get(names.RETRY_TOPIC) or message.topic
        asked = outgoing(message, topic, self._now_ms())
        return Response(body=dumps(await _told(self._commands.verify(grpc_client_id(member.key), asked))))

    def _member(self, group_name: str, client_id: str) -> Member:
        """Return the member of this proxy with that id, or any if the id is the proxy's own.  Raises RequestError."""
        group = self._consumers.group(group_name)
        member = None if group is None else group.find(client_id)
        if member is None and group is not None and client_id == self._own_id():
            here = (one for one in group.members.values() if one.proxy is None and one.channel is None)
            member = next(here, None)
        if member is None:
            remark = f"The Consumer <{group_name}> <{client_id}> not online"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if member.proxy is not None:
            remark = f"The Consumer <{group_name}> <{client_id}> is connected to proxy {member.proxy}: ask there"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        return member


class StoredMessages:
    """Messages that operators name by their id."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def fetch(self, request: Request[ConsumeMessageDirectlyRequestHeader]) -> bytes:
        """Return the record of the message that `request` names.  Raises RequestError, ClientError."""
        header, instance = request.header, self._brokers.instance
        remark = f"message {header.msg_id} is on no broker that the proxy knows"
        try:
            address, offset = _place(header.msg_id or "")
        except ValueError:
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from None
        # Only to brokers: an id can name any address.
        name = await instance.broker_at(address)
        if name is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        header.broker_name = name
        asked = ViewMessageRequestHeader(topic=header.topic or "", offset=offset)
        found = await self._brokers.ask(name, RequestCode.VIEW_MESSAGE_BY_ID, asked, timeout_s=_TIMEOUT_S)
        if found.code != ResponseCode.SUCCESS:
            raise RequestError(ResponseCode.SYSTEM_ERROR, found.remark or remark)
        return found.body


def _place(message_id: str) -> tuple[str, int]:
    """Return the broker's address and the offset in its log.  Raises ValueError."""
    raw = bytes.fromhex(message_id)
    if len(raw) not in (_ID_BYTES, _ID_V6_BYTES):
        raise ValueError(f"{len(raw)} bytes")
    host, port, offset = raw[:-12], int.from_bytes(raw[-12:-8], "big"), int.from_bytes(raw[-8:], "big")
    text = str(ipaddress.ip_address(host))
    return (f"[{text}]:{port}" if ":" in text else f"{text}:{port}"), offset


async def _passed(member: Member, code: int, header: Header, body: bytes) -> Response:
    assert member.channel is not None
    try:
        found = await member.channel.request(code, header, body, timeout_s=_CALL_TIMEOUT_S)
    except RemotingTimeout as error:
        return Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{member.client_id}> Timeout: {error}")
    return Response(found.code, found.remark, found.ext_fields, found.body)


async def _told(answer: Awaitable[Any]) -> Any:
    """Return what a gRPC client answers.  Raises RequestError."""
    try:
        return await answer
    except TimeoutError:
        raise RequestError(ResponseCode.SYSTEM_BUSY, "call remote timeout") from None
    except GrpcRefusal as refused:
        raise RequestError(_CODES.get(refused.code, ResponseCode.SYSTEM_ERROR), refused.message) from None


def _read(record: bytes, broker_name: str) -> ReceivedMessage:
    try:
        (message,) = decode_records(record, MessageQueue("", broker_name, 0))
    except (ProtocolError, ValueError):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "the message cannot be read") from None
    return message
