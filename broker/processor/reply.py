"""SEND_REPLY_MESSAGE and its V2: a reply to a request message is pushed to the requester.

A reply names the requester in REPLY_TO_CLIENT.  It is pushed over that producer's connection, also stored with
storeReplyMessageEnable, and then acknowledged: success means that the requester has it.
Source: RocketMQ 5.3.3, `ReplyMessageProcessor`, `ReplyMessageRequestHeader`.
Different here: the stored record keeps the flags of the body's compression, and loses the properties that would make it
a delayed message or an inner batch.
"""

import asyncio
import ipaddress
import logging
from typing import Any, Final

from broker.core import BrokerCore
from broker.message_id import host_bytes, offset_message_id
from broker.send.planner import SendHeader, SendPlanner
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import COMPRESSION_MASK, SysFlag
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Resource, Route, Traffic
from store.record.record import PendingMessage, TagsCodes

logger = logging.getLogger(__name__)

# `Broker2Client.callClient`
_PUSH_TIMEOUT_S: Final = 10.0
# Max bytes of replies that wait for requesters at once; beyond it, replies are refused as busy.
_WAITING_BYTES: Final = 64 * 1024 * 1024
_COMPRESSION: Final = int(SysFlag.COMPRESSED) | COMPRESSION_MASK
_NOT_STORED: Final = (names.DELAY, names.INNER_NUM, names.INNER_BASE, names.POP_CK)
_BUSY_REMARK: Final = "[OVERLOAD]system busy, start flow control for a while"


class ReplyProcessor:
    """Handler of replies.  Lives in the event loop's thread; a waiting reply is an entry in a table, not a task."""

    def __init__(self, core: BrokerCore, planner: SendPlanner) -> None:
        self._config = core.config
        self._store = core.store
        self._planner = planner
        self._producers = core.producers
        self._waits = core.waits
        self._clock = core.clock
        self._tags_codes = TagsCodes(core.config.store.message_delay_level)
        self._waiting = 0
        self._waiting_bytes = 0

    def routes(self) -> list[Route]:
        """The routes of this processor."""
        return [
            Route(code, header, self.reply, Resource.TOPIC, Action.PUB, Traffic.SEND)
            for code, header in (
                (RequestCode.SEND_REPLY_MESSAGE, SendMessageRequestHeader),
                (RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestHeaderV2),
            )
        ]

    def reply(self, request: Request[Any]) -> Response | None:
        """Push one reply; respond to its sender when the requester has it or cannot be reached."""
        header: SendHeader = request.header
        try:
            plan = self._planner.admit(header, request.channel.peer)
            self._planner.spend(plan, self._planner.callers(request.channel), request)
            queue_id = plan.queue_id
        except RequestError as error:
            fields = self._constants() | dict(error.fields or {})
            return Refusal(error.code, error.remark, fields, reason=error.refusal_reason)
        properties = names.parse(header.properties)
        requester = properties.get(names.REPLY_TO_CLIENT)
        if requester is None:
            self._not_pushed(request, queue_id, f"reply message properties[{names.REPLY_TO_CLIENT}] is null")
            return None
        channel = self._producers.find_channel(requester)
        if channel is None:
            self._not_pushed(request, queue_id, f"push reply message fail, channel of <{requester}> not found.")
            return None
        size_bytes = len(request.body)
        if not self._has_room(size_bytes):
            return Refusal(ResponseCode.SYSTEM_BUSY, _BUSY_REMARK, self._constants())
        self._waiting += 1
        self._waiting_bytes += size_bytes
        pushed = channel.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._push_header(request, properties),
            request.body,
            timeout_s=_PUSH_TIMEOUT_S,
        )
        pushed.add_done_callback(lambda answer: self._pushed(request, queue_id, requester, answer))
        return None

    def _has_room(self, size_bytes: int) -> bool:
        most = self._config.broker.reply_thread_pool_queue_capacity
        return self._waiting < most and (not self._waiting or self._waiting_bytes + size_bytes <= _WAITING_BYTES)

    def _push_header(self, request: Request[Any], properties: dict[str, str]) -> ReplyMessageRequestHeader:
        header: SendHeader = request.header
        now_ms = self._clock.wall_ms()
        host, port = request.channel.peer
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=names.encode(properties | {names.PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=f"{host}:{port}",
            store_host=_host_text(self._store.store_host),
            store_timestamp=now_ms,
        )

    def _pushed(
        self, request: Request[Any], queue_id: int, requester: str, answer: "asyncio.Future[ReceivedResponse]"
    ) -> None:
        self._waiting -= 1
        self._waiting_bytes -= len(request.body)
        remark = None
        if answer.cancelled() or (error := answer.exception()) is not None:
            remark = f"push reply message to {requester}fail."
            reason = "cancelled" if answer.cancelled() else str(error)
            peer_lines.warning(
                logger, request.channel.peer, "event=reply_not_pushed client=%s reason=%r", requester, reason
            )
        elif answer.result().code != ResponseCode.SUCCESS:
            remark = f"push reply message to {requester}fail."
            response = answer.result()
            peer_lines.warning(
                logger, request.channel.peer, "event=reply_not_pushed client=%s code=%d reason=%r", requester,
                response.code, response.remark,
            )  # fmt: skip
        self._store_and_answer(request, queue_id, remark)

    def _not_pushed(self, request: Request[Any], queue_id: int, remark: str) -> None:
        peer_lines.warning(
            logger, request.channel.peer, "event=reply_not_pushed topic=%s reason=%r", request.header.topic, remark
        )
        self._store_and_answer(request, queue_id, remark)

    # Storing and answering

    def _store_and_answer(self, request: Request[Any], queue_id: int, remark: str | None) -> None:
        """Store the reply and respond; `remark` is why the requester does not have the reply, None if it has."""
        fields: dict[str, str] = {}
        if remark is None:
            # Clients need these fields, even if nothing is stored.
            fields = to_ext_fields(SendMessageResponseHeader(msg_id="0", queue_id=queue_id, queue_offset=0))
        end_offset = None
        if self._config.broker.store_reply_message_enable:
            try:
                queue_offset, physical_offset, size = self._store.append([self._message(request, queue_id)])[0]
            except (RequestError, StoreError) as error:
                # The requester has the reply, so the response is still a success.
                peer_lines.warning(
                    logger, request.channel.peer, "event=reply_not_stored topic=%s reason=%r", request.header.topic,
                    str(error),
                )  # fmt: skip
            else:
                message_id = offset_message_id(self._store.store_host, physical_offset)
                header = SendMessageResponseHeader(msg_id=message_id, queue_id=queue_id, queue_offset=queue_offset)
                fields = to_ext_fields(header)
                end_offset = physical_offset + size
        fields |= self._constants()
        response = Response(header=fields) if remark is None else _undelivered(remark, fields)
        if end_offset is None or not self._waits.is_needed:
            request.channel.reply(request, response)
            return

        def answer(error: StoreError | None, code: ResponseCode) -> None:
            request.channel.reply(request, response)

        self._waits.wait(end_offset, answer)

    def _message(self, request: Request[Any], queue_id: int) -> PendingMessage:
        """Return the record of a reply.  Raises RequestError if it exceeds a limit."""
        header: SendHeader = request.header
        properties = names.parse(header.properties)
        for name in _NOT_STORED:
            properties.pop(name, None)
        encoded = names.encode(properties).encode("utf-8", "replace")
        size_bytes = len(request.body)
        if not size_bytes or size_bytes > self._config.store.max_message_size or len(encoded) > MAX_PROPERTIES_BYTES:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"body {size_bytes} B, properties {len(encoded)} B")
        return PendingMessage(
            header.topic, queue_id, request.body, encoded, self._tags_codes.of("", encoded, 0), header.flag,
            header.sys_flag & _COMPRESSION, header.born_timestamp, host_bytes(*request.channel.peer),
            header.reconsume_times or 0,
        )  # fmt: skip

    def _constants(self) -> dict[str, str]:
        broker = self._config.broker
        return {names.MSG_REGION: broker.region_id, names.TRACE_ON: "true" if broker.trace_on else "false"}


def _undelivered(remark: str, fields: dict[str, str]) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark, fields, reason=Reason.CLIENT_NOT_ONLINE)


def _host_text(host: bytes) -> str:
    return f"{ipaddress.ip_address(host[:-4])}:{int.from_bytes(host[-4:], 'big')}"
