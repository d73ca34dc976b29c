"""Requests about messages and offsets: each goes to the master that it names, and nothing of it is changed.

Source: RocketMQ 5.3.3, `SendMessageActivity`, `PullMessageActivity`, `PopMessageActivity`, `ConsumerManagerActivity`,
`TransactionActivity`, `RecallMessageActivity`.  Batches of acks and waits for messages (NOTIFICATION) are served too.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

import msgspec

from acl.auth.model import Action as AuthAction
from acl.gate import require_topic
from proxy.activity.send import check_type
from proxy.brokers.metadata import Metadata
from proxy.clients.members import Consumers, Producers
from proxy.config import ProxyConfig
from proxy.remoting.forwarder import Fields, Forwarder, named_broker, named_topic
from proxy.status import Refusal as GrpcRefusal
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.requests import read_batch_ack, read_lock_batch
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import ViewMessageRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import type_of
from sprocket.remoting.message.properties import encoded_name, find_last
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX
from sprocket.remoting.routes import Action, AllFields, Handler, Resource, Route, Traffic

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
# A held request is answered this much later than it asked for, at most.
_HELD_SLACK_S: Final = 10.0
_MAX_HOLD_MS: Final = 3_600_000
# `PullSysFlag.FLAG_SUBSCRIPTION`
_WITH_SUBSCRIPTION: Final = 0x4
_V2: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_TRANSFERRED: Final = encoded_name("TRANSFER_FLAG")


class MessageRoutes:
    """Routes of requests that are forwarded.  `transactions_begin` is called with each new group that sends some."""

    def __init__(
        self,
        forwarder: Forwarder,
        metadata: Metadata,
        consumers: Consumers,
        producers: Producers,
        config: ProxyConfig,
        spawn: Callable[[Coroutine[object, object, None]], object],
        transactions_begin: Callable[[], None],
    ) -> None:
        self._forwarder = forwarder
        self._metadata = metadata
        self._consumers = consumers
        self._producers = producers
        self._config = config
        self._spawn = spawn
        self._transactions_begin = transactions_begin

    def routes(self) -> list[Route]:
        """Return the routes."""
        code, topic, group = RequestCode, Resource.TOPIC, Resource.GROUP
        pub, sub, get = Action.PUB, Action.SUB, Action.GET
        send, pull, client = Traffic.SEND, Traffic.PULL, Traffic.CLIENT
        served: list[tuple[RequestCode, Handler, Resource, Action, Traffic]] = [
            (code.SEND_MESSAGE, self._send, topic, pub, send),
            (code.SEND_MESSAGE_V2, self._send, topic, pub, send),
            (code.SEND_BATCH_MESSAGE, self._send, topic, pub, send),
            (code.RECALL_MESSAGE, self._plain, topic, pub, send),
            (code.CONSUMER_SEND_MSG_BACK, self._send_back, group, sub, send),
            (code.END_TRANSACTION, self._end_transaction, topic, pub, send),
            (code.PULL_MESSAGE, self._pull, topic, sub, pull),
            (code.LITE_PULL_MESSAGE, self._pull, topic, sub, pull),
            (code.POP_MESSAGE, self._held, topic, sub, pull),
            (code.NOTIFICATION, self._held, topic, sub, pull),
            (code.ACK_MESSAGE, self._plain, topic, sub, client),
            (code.BATCH_ACK_MESSAGE, self._batch_ack, topic, sub, client),
            (code.CHANGE_MESSAGE_INVISIBLETIME, self._plain, topic, sub, client),
            (code.UPDATE_CONSUMER_OFFSET, self._plain, topic, sub, client),
            (code.QUERY_CONSUMER_OFFSET, self._plain, topic, sub, client),
            (code.SEARCH_OFFSET_BY_TIMESTAMP, self._plain, topic, get, client),
            (code.GET_MAX_OFFSET, self._plain, topic, get, client),
            (code.GET_MIN_OFFSET, self._plain, topic, get, client),
            (code.GET_EARLIEST_MSG_STORETIME, self._plain, topic, get, client),
            (code.LOCK_BATCH_MQ, self._lock, group, sub, client),
            (code.UNLOCK_BATCH_MQ, self._lock, group, sub, client),
        ]
        return [Route(one[0], AllFields, one[1], one[2], one[3], one[4]) for one in served]

    def _plain(self, request: Request[Fields]) -> None:
        self._forwarder.forward(request, _TIMEOUT_S)

    # Sends

    def _send(self, request: Request[Fields]) -> None:
        fields = request.header
        is_short = request.code in _V2
        # A text that is no UTF-8 goes on as it came; only its type is asked here.
        properties = (fields.get("i" if is_short else "properties") or "").encode("utf-8", "replace")
        topic = fields.get("b" if is_short else "topic") or ""
        kind = type_of_encoded(properties)
        is_own = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        if kind == "TRANSACTION" and not is_own:
            group = fields.get("a" if is_short else "producerGroup") or ""
            if self._producers.sends_transactions(group):
                # Brokers ask about open transactions only those who tell them of the group.
                self._transactions_begin()
        if is_own or not self._config.enable_topic_message_type_check or find_last(properties, _TRANSFERRED):
            self._forwarder.forward(request, _TIMEOUT_S)
            return
        expected = self._metadata.known_type(topic)
        if expected is None:
            self._spawn(self._send_later(request, topic, kind))
        else:
            self._send_checked(request, expected, kind)

    async def _send_later(self, request: Request[Fields], topic: str, kind: str) -> None:
        """Send a message of a topic whose type is not known yet."""
        try:
            self._send_checked(request, await self._metadata.message_type(topic), kind)
        except Exception as error:  # any error: the client waits for an answer
            request.channel.refuse(request, error)

    def _send_checked(self, request: Request[Fields], expected: str, kind: str) -> None:
        # A topic without a route is created by its first send, if its broker does that: nobody knows its type.
        if expected != "UNSPECIFIED":
            try:
                check_type(expected, {kind})
            except GrpcRefusal as refused:
                raise RequestError(ResponseCode.MESSAGE_ILLEGAL, refused.message) from None
        self._forwarder.forward(request, _TIMEOUT_S)

    # Requests whose topic only the message tells

    def _send_back(self, request: Request[Fields]) -> None:
        fields = request.header
        if request.access is None:
            self._plain(request)
        else:
            self._spawn(self._judged(request, fields.get("offset"), AuthAction.SUB, fields.get("group")))

    def _end_transaction(self, request: Request[Fields]) -> None:
        if request.access is None:
            self._plain(request)
        else:
            self._spawn(self._judged(request, request.header.get("commitLogOffset"), AuthAction.PUB, None))

    async def _judged(
        self, request: Request[Fields], offset: str | None, action: AuthAction, group: str | None
    ) -> None:
        """Forward a request if its sender may do `action` on the message that it names by its offset in the log.

        Brokers ask that of the user who signed.  From here requests bear the proxy's signature.
        """
        try:
            topic = await self._topic_at(request, offset)
            require_topic(request, topic, action, group)
            self._plain(request)
        except Exception as error:  # any error: the client waits for an answer
            request.channel.refuse(request, error)

    async def _topic_at(self, request: Request[Fields], offset: str | None) -> str:
        code, fields = request.code, request.header
        try:
            header = ViewMessageRequestHeader(topic=named_topic(code, fields) or "", offset=int(offset or ""))
        except ValueError:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"the offset in the log is {offset!r:.40}") from None
        channel = await self._forwarder.channel_of(named_broker(code, fields), code, fields)
        found = await channel.request(RequestCode.VIEW_MESSAGE_BY_ID, header, timeout_s=_TIMEOUT_S)
        if found.code != ResponseCode.SUCCESS:
            raise RequestError(ResponseCode.SYSTEM_ERROR, found.remark or "there is no message at this offset")
        try:
            (message,) = decode_records(found.body, MessageQueue("", "", 0))
        except (ProtocolError, ValueError):
            raise RequestError(ResponseCode.SYSTEM_ERROR, "there is no message at this offset") from None
        return message.properties.get(names.REAL_TOPIC) or message.topic

    # Reads

    def _pull(self, request: Request[Fields]) -> None:
        fields: Mapping[str, str] = request.header
        sys_flag = _number(fields, "sysFlag")
        if not sys_flag & _WITH_SUBSCRIPTION:
            # The client relies on its heartbeat, which only the proxy got.
            fields = self._with_subscription(fields, sys_flag)
        self._forwarder.forward(request, held_limit_s(fields, "suspendTimeoutMillis"), fields=fields)

    def _with_subscription(self, fields: Fields, sys_flag: int) -> Fields:
        group, topic = fields.get("consumerGroup") or "", fields.get("topic") or ""
        if self._consumers.group(group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        wanted = self._consumers.subscription(group, topic)
        if wanted is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        return {
            **fields,
            "sysFlag": str(sys_flag | _WITH_SUBSCRIPTION),
            "subscription": wanted.sub_string or "*",
            "expressionType": wanted.expression_type or "TAG",
        }

    def _held(self, request: Request[Fields]) -> None:
        self._forwarder.forward(request, held_limit_s(request.header, "pollTime"))

    # Requests whose body names the broker

    def _lock(self, request: Request[Fields]) -> Response | None:
        queues = read_lock_batch(request.body).mq_set
        if not queues:
            return Response(remark="MessageQueue set is empty", body=request.body)
        self._forwarder.forward(request, _TIMEOUT_S, queue=queues[0])
        return None

    def _batch_ack(self, request: Request[Fields]) -> None:
        body = read_batch_ack(request.body)
        self._forwarder.forward(request, _TIMEOUT_S, broker_name=body.broker_name or None)


def held_limit_s(fields: Fields, name: str) -> float:
    """Return how long to wait for the answer to a request that asks to be held for the field `name`, ms."""
    return min(max(_number(fields, name), 0), _MAX_HOLD_MS) / 1000 + _HELD_SLACK_S


def type_of_encoded(properties: bytes) -> str:
    """Return the type of a message with these encoded properties."""

    def value_of(name: str) -> str | None:
        value = find_last(properties, encoded_name(name))
        return None if value is None else value.decode("utf-8", "replace")

    return type_of(value_of)


def _number(fields: Fields, name: str) -> int:
    text = fields.get(name) or "0"
    try:
        return msgspec.convert(text, int, strict=False)
    except msgspec.ValidationError:
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"{name} is {text!r:.40}, which is no number") from None
