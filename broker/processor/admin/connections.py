"""Handlers for connections, and for requests that the broker forwards to a consumer.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.getConsumerConnectionList`, `callConsumer` and others,
`Broker2Client.getConsumeStatus`.
"""

import asyncio
import logging

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from broker.client.clients import Member
from broker.core import BrokerCore
from broker.message_id import decode_offset_message_id
from sprocket.common.errors import ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import (
    ConsumerConnection,
    MessageQueue,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    by_queue,
)
from sprocket.remoting.bodies.consumption import GetConsumerStatusBody
from sprocket.remoting.client import ConnectionLost, RemotingTimeout
from sprocket.remoting.codec.body_limits import ANSWERS
from sprocket.remoting.codec.fastjson import dumps, in_steps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Buffer, Request, Response
from sprocket.remoting.headers.admin import GetConsumerStatusRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Resource, Route, Steps
from store.record.record import Record, decode

logger = logging.getLogger(__name__)

# `Broker2Client.callClient`, `getConsumeStatus`
_CALL_TIMEOUT_S = 10.0
_STATUS_TIMEOUT_S = 5.0
# V3_1_8_SNAPSHOT and V3_0_7_SNAPSHOT: the first client versions that respond to these requests.
_FIRST_VERSION = 62
_FIRST_STATUS_VERSION = 28


class ConnectionProcessor:
    """Handler of lists of connections and of forwarded requests."""

    def __init__(self, core: BrokerCore) -> None:
        self._config = core.config
        self._store = core.store
        self._topics = core.topics
        self._groups = core.groups
        self._consumers = core.consumers
        self._producers = core.producers
        self._clock = core.clock

    def routes(self) -> list[Route]:
        code, group, cluster = RequestCode, Resource.GROUP, Resource.CLUSTER
        return [
            Route(
                code.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader, self.consumers,
                group, Action.GET,
            ),
            Route(
                code.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader, self.producers,
                cluster, Action.GET,
            ),
            Route(
                code.GET_ALL_PRODUCER_INFO, GetAllProducerInfoRequestHeader, self.all_producers,
                cluster, Action.GET,
            ),
            Route(
                code.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader, self.running_info,
                group, Action.GET,
            ),
            Route(
                code.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, self.consume_directly,
                group, Action.SUB,
            ),
            Route(
                code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequestHeader, self.consumer_status,
                group, Action.GET,
            ),
        ]  # fmt: skip

    def consumers(self, request: Request[GetConsumerConnectionListRequestHeader]) -> Steps:
        """Return the members of a consumer group and their subscriptions."""
        group = self._consumers.group(request.header.consumer_group)
        if group is None:
            remark = f"the consumer group[{request.header.consumer_group}] not online"
            return Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        members = list(group.members.values())
        body = ConsumerConnection(
            (yield from in_steps((member.connection() for member in members), list)),
            dict(group.subscriptions),
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return Response(body=dumps(body))

    def producers(self, request: Request[GetProducerConnectionListRequestHeader]) -> Steps:
        """Return the members of a producer group."""
        members = self._producers.members(request.header.producer_group)
        if not members:
            remark = f"the producer group[{request.header.producer_group}] not exist"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        connections = yield from in_steps((member.connection() for member in list(members)), list)
        return Response(body=dumps(ProducerConnection(connections)))

    def all_producers(self, request: Request[GetAllProducerInfoRequestHeader]) -> Steps:
        """Return the members of all producer groups."""
        offset_ms = self._clock.wall_ms() - round(self._clock.monotonic() * 1000)

        def info(member: Member) -> ProducerInfo:
            return ProducerInfo(
                client_id=member.client_id,
                remote_ip=member.channel.peer[0],
                language=member.language,
                version=member.version,
                last_update_timestamp=offset_ms + round(member.heard_at * 1000),
            )

        table = {}
        for group, members in [(group, list(members)) for group, members in self._producers.groups.items()]:
            table[group] = yield from in_steps(map(info, members), list)
            yield
        return Response(body=dumps(ProducerTableInfo(table)))

    # Forwarded requests

    async def running_info(self, request: Request[GetConsumerRunningInfoRequestHeader]) -> Response:
        """Return the running information of a consumer."""
        header = request.header
        return await self._ask(request.code, header.consumer_group, header.client_id, header, request.body)

    async def consume_directly(self, request: Request[ConsumeMessageDirectlyRequestHeader]) -> Response:
        """Let one consumer consume one message again, and return the result."""
        header = request.header
        record: Buffer = b""
        try:
            _, physical_offset = decode_offset_message_id(header.msg_id or "")
            record = self._store.record_at(physical_offset) or b""
        except ValueError:
            pass
        if not len(record):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"message {header.msg_id} is not on this broker")
        read = decode(memoryview(record), check_crc=False)
        if not isinstance(read, Record):
            return Refusal(ResponseCode.SYSTEM_ERROR, f"message {header.msg_id} is not on this broker")
        require_topic(request, read.topic, AuthAction.SUB, header.consumer_group)
        header.broker_name = self._config.broker.broker_name
        topic = self._topics.get(header.topic or "")
        group = self._groups.get(header.consumer_group)
        header.topic_sys_flag = topic.topic_sys_flag if topic is not None else None
        header.group_sys_flag = group.group_sys_flag if group is not None else None
        return await self._ask(request.code, header.consumer_group, header.client_id or "", header, bytes(record))

    async def _ask(self, code: int, group_name: str, client_id: str, header: Header, body: Buffer) -> Response:
        group = self._consumers.group(group_name)
        member = None if group is None else group.find_member(client_id)
        if member is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")
        if member.version < _FIRST_VERSION:
            remark = (
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        try:
            answer = await member.channel.request(code, header, body, timeout_s=_CALL_TIMEOUT_S)
        except RemotingTimeout as error:
            remark = f"consumer <{group_name}> <{client_id}> Timeout: {error}"
            return Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except ConnectionLost as error:
            remark = f"invoke consumer <{group_name}> <{client_id}> Exception: {error}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return Response(answer.code, answer.remark, answer.ext_fields, answer.body)

    async def consumer_status(self, request: Request[GetConsumerStatusRequestHeader]) -> Response:
        """Return the offsets of each member of a group, or of one member, in its queues of a topic.

        A member that does not respond is omitted.
        """
        header = request.header
        wanted = (header.client_addr or "").strip()
        group = self._consumers.group(header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        members = [member for member in group.members.values() if wanted in ("", member.client_id)]
        for member in members:
            if member.version < _FIRST_STATUS_VERSION:
                remark = f"the client does not support this feature. version={member.version}"
                return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        question = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        tables = await asyncio.gather(*(_positions(member, question) for member in members))
        found = {member.client_id: table for member, table in zip(members, tables, strict=True) if table is not None}
        return Response(body=dumps(GetConsumerStatusBody[MessageQueue](consumer_table=found)))


async def _positions(member: Member, question: GetConsumerStatusRequestHeader) -> dict[MessageQueue, int] | None:
    """Return the member's offsets; None if it refuses or does not respond."""
    try:
        answer = await member.channel.request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question, timeout_s=_STATUS_TIMEOUT_S
        )
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        return by_queue(loads(answer.body, GetConsumerStatusBody[str], ANSWERS).message_queue_table)
    except (RemotingTimeout, ConnectionLost, ProtocolError) as error:
        peer_lines.warning(
            logger, member.channel.peer, "event=consumer_status_failed group=%s client=%s reason=%r", question.group,
            member.client_id, str(error),
        )  # fmt: skip
        return None
