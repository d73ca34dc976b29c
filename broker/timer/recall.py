"""RECALL_MESSAGE: recall of a message that waits in the timer wheel.

The recall is a message of the wheel's topic that enters the slot of the message that it names.  When the slot is due,
neither is delivered.  The broker does not look for that message, so a second recall of it succeeds like the first.
Source: RocketMQ 5.3.3, `RecallMessageProcessor`.
"""

import logging
from typing import Final

from broker.core import BrokerCore
from broker.message_id import host_bytes
from broker.timer.recall_handle import RecallHandle
from broker.timer.timer_intake import TimerIntake
from sprocket.common.errors import RequestError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic import PERM_WRITE
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, Resource, Route, Traffic
from store.record.record import PendingMessage

logger = logging.getLogger(__name__)

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"
_FAILED: Final = "recall failed, execute error"
_UNAVAILABLE: Final = "recall failed, broker service not available"


class RecallProcessor:
    """Handler of recalls.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, intake: TimerIntake) -> None:
        self._core = core
        self._intake = intake

    def routes(self) -> list[Route]:
        header = RecallMessageRequestHeader
        return [Route(RequestCode.RECALL_MESSAGE, header, self.recall, Resource.TOPIC, Action.PUB, Traffic.SEND)]

    def recall(self, request: Request[RecallMessageRequestHeader]) -> Response | None:
        """Recall a message; the response follows when the recall is as safe as a confirmed send."""
        region = {names.MSG_REGION: self._core.config.broker.region_id}
        try:
            handle = self._checked(request.header)
            message = self._message(request, handle)
            (appended,) = self._core.store.append([message])
        except RequestError as error:
            return Refusal(error.code, error.remark, region, reason=error.refusal_reason)
        except StoreError as error:
            peer_lines.warning(
                logger, request.channel.peer, "event=recall_failed topic=%s reason=%r", request.header.topic, str(error)
            )
            return Refusal(ResponseCode.SYSTEM_ERROR, _FAILED, region, reason=error.refusal_reason)

        def answer(error: StoreError | None, code: ResponseCode) -> None:
            del code  # with any code the recall is stored, like a send whose wait timed out
            if error is None:
                header = RecallMessageResponseHeader(msg_id=handle.unique_key)
                response = Response(header={"msgId": header.msg_id} | region)
            else:
                response = Refusal(ResponseCode.SYSTEM_ERROR, _FAILED, region, reason=error.refusal_reason)
            request.channel.reply(request, response)

        _, physical_offset, size_bytes = appended
        self._core.waits.wait(physical_offset + size_bytes, answer)
        return None

    def _checked(self, header: RecallMessageRequestHeader) -> RecallHandle:
        """Return the handle of a valid request.  Raises RequestError."""
        core, config = self._core, self._core.config.broker
        code, now_ms = ResponseCode, core.clock.wall_ms()
        if not config.recall_message_enable:
            raise RequestError(code.NO_PERMISSION, "recall failed, operation is forbidden", Reason.TURNED_OFF)
        is_writable = config.broker_permission & PERM_WRITE or config.allow_recall_when_broker_not_writeable
        if now_ms < config.start_accept_send_request_time_stamp or not is_writable:
            raise RequestError(code.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if header.topic not in core.topics:
            raise RequestError(code.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError as error:
            raise RequestError(code.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != header.topic:
            raise RequestError(code.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise RequestError(code.ILLEGAL_OPERATION, _UNAVAILABLE)
        if not 0 < handle.deliver_ms - now_ms < core.config.store.timer_max_delay_sec * 1000:
            raise RequestError(code.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _message(self, request: Request[RecallMessageRequestHeader], handle: RecallHandle) -> PendingMessage:
        """Return the message that recalls the message of `handle`.  Raises RequestError."""
        now_ms = self._core.clock.wall_ms()
        properties = {
            names.TAGS: _TAG,
            names.TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_key}",
            names.UNIQ_KEY: handle.unique_key,
            names.TIMER_DELIVER_MS: str(handle.deliver_ms),
            names.BORN_TIMESTAMP: str(now_ms),
        }
        if request.header.producer_group:
            properties[names.PRODUCER_GROUP] = request.header.producer_group
        if any(map(names.separators_in, properties.values())):
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        try:
            topic, queue_id = self._intake.place(handle.topic, 0, properties)
        except RequestError as error:
            peer_lines.warning(
                logger, request.channel.peer, "event=recall_refused topic=%s reason=%r", handle.topic, error.remark
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, _FAILED) from None
        encoded = names.encode(properties).encode("utf-8", "replace")
        born_host = host_bytes(*request.channel.peer)
        return PendingMessage(topic, queue_id, _BODY, encoded, java_hash_code(_TAG), 0, 0, now_ms, born_host)
