"""Requests of a consumer that pops: pop, acknowledge, change the invisible time, wait for messages.

Source: RocketMQ 5.3.3, `PullAPIWrapper.popAsync`, `MQClientAPIImpl`, `DefaultMQPushConsumerImpl.ackAsync`,
`changePopInvisibleTimeAsync`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from sprocket.client.answers import header_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.wakeup import pause
from sprocket.client.connection.wire_names import WireNames
from sprocket.client.errors import AnswerUnreadable, BrokerNotFound, ClientError, refusal
from sprocket.client.pop.popped_message import PoppedMessage, popped_messages, renew_handle
from sprocket.client.settlement import Settlement
from sprocket.common.errors import ProtocolError, RequestError
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from sprocket.remoting.message.pop_extra_info import PopHandle, real_topic

MAX_POP_NUMS = 32
# Maximum delay of a held request's response beyond its wait.
_POLL_SLACK_S = 10.0
# Time allowed for a response within the remaining time.
_ANSWER_LIMIT_S = 0.5
_NOTHING = frozenset({ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})
_FULL_PAUSE_S = 0.2

H = TypeVar("H", bound=Header)
# Reads the messages of an answer; arguments as those of `popped_messages`.
Reader = Callable[[bytes, H, str, str, float, Settlement | None], list[PoppedMessage]]


@dataclass(frozen=True, slots=True)
class Target:
    """A topic on a broker."""

    topic: str
    broker_name: str


class PopRequests:
    """Sender of one group's requests.

    Every method raises BrokerNotFound, BrokerRefused, ConnectFailed, ConnectionLost, RemotingTimeout.
    """

    is_lite = False  # whether its messages are those of lite topics

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        *,
        init_mode: int,
        is_ordered: bool,
        consumer: Settlement | None = None,
    ) -> None:
        """`consumer` settles the messages."""
        self._instance = instance
        self._consumer = consumer
        self._group = group
        self._init_mode = init_mode
        self._is_ordered = is_ordered
        # A repeat of an ordered pop whose response was lost uses the same name, so it gets the same messages.
        # Only names of failed pops are used again: concurrent pops of one name would all get the same messages.
        self._lost_attempts: dict[Target, str] = {}

    async def pop(
        self, target: Target, subscription: SubscriptionData, max_messages: int, invisible_s: float, wait_s: float
    ) -> list[PoppedMessage]:
        """Pop up to `max_messages`, invisible to others for `invisible_s`; the broker may hold it for `wait_s`."""
        attempt_id = self._attempt_id(target)
        header = PopMessageRequestHeader(
            consumer_group=self._group,
            topic=target.topic,
            queue_id=-1,
            max_msg_nums=min(max_messages, MAX_POP_NUMS),
            invisible_time=round(invisible_s * 1000),
            poll_time=round(wait_s * 1000),
            born_time=0,  # the broker's own time: clocks need not agree
            init_mode=self._init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=self._is_ordered,
            attempt_id=attempt_id,
            broker_name=target.broker_name,
        )
        found = await self._found(target, RequestCode.POP_MESSAGE, header, wait_s, attempt_id)
        return self._read(target, found, PopMessageResponseHeader, popped_messages)

    def _attempt_id(self, target: Target) -> str | None:
        """Return the name of the next pop of `target`; None for one without order."""
        if not self._is_ordered:
            return None
        return self._lost_attempts.pop(target, None) or self._instance.identity.new_unique_id()

    async def _found(
        self, target: Target, code: int, header: Header, wait_s: float, attempt_id: str | None
    ) -> tuple[ReceivedResponse, float] | None:
        """Return the answer to a pop, and the time of the pop (monotonic s); None if there were no messages."""
        asked_at = self._instance.clock.monotonic()
        try:
            response = await self._ask(target, code, header, timeout_s=wait_s + _POLL_SLACK_S)
        except BaseException:
            if attempt_id is not None:
                self._lost_attempts[target] = attempt_id
            raise
        if response.code in _NOTHING:
            if response.code == ResponseCode.POLLING_FULL:
                await pause(min(_FULL_PAUSE_S, wait_s))
            return None
        # The invisible time counts from the broker's pop, shortly before its response arrived.
        popped_at = max(asked_at, self._instance.clock.monotonic() - _ANSWER_LIMIT_S)
        return self._success(response, target), popped_at

    def _read(
        self, target: Target, found: tuple[ReceivedResponse, float] | None, header_type: type[H], read: Reader[H]
    ) -> list[PoppedMessage]:
        """Return the messages in what `_found` has returned.  Raises AnswerUnreadable."""
        if found is None:
            return []
        response, popped_at = found
        header, names = header_of(response, header_type), self._instance.names
        try:
            topic = names.whole(target.topic)
            found_messages = read(response.body, header, topic, target.broker_name, popped_at, self._consumer)
        except ProtocolError as error:
            raise AnswerUnreadable(f"the answer of {target.broker_name} to a pop: {error}") from None
        return found_messages if not names.namespace else [_renamed(popped, names) for popped in found_messages]

    async def has_messages(self, target: Target, wait_s: float) -> bool:
        """Return whether a pop would find messages; the broker holds the request for up to `wait_s`."""
        header = NotificationRequestHeader(
            consumer_group=self._group,
            topic=target.topic,
            queue_id=-1,
            poll_time=round(wait_s * 1000),
            born_time=0,  # the broker's own time: clocks need not agree
            order=self._is_ordered,
            broker_name=target.broker_name,
        )
        response = await self._ask(target, RequestCode.NOTIFICATION, header, timeout_s=wait_s + _POLL_SLACK_S)
        if response.code in _NOTHING:
            return False
        answer = header_of(self._success(response, target), NotificationResponseHeader)
        if answer.polling_full:
            await pause(min(_FULL_PAUSE_S, wait_s))
        return answer.has_msg

    async def ack(self, popped: PoppedMessage) -> None:
        """Acknowledge one message."""
        handle, target = popped.handle, Target(popped.topic, popped.handle.broker_name)
        header = AckMessageRequestHeader(
            consumer_group=self._group,
            topic=self._stored_topic(popped),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=_offset(handle),
            lite_topic=self._lite_topic(popped),
            broker_name=target.broker_name,
        )
        self._success(await self._ask(target, RequestCode.ACK_MESSAGE, header), target)

    async def ack_batch(self, target: Target, batch: Iterable[PoppedMessage]) -> None:
        """Acknowledge messages that were popped from `target`, in one request."""
        acks: dict[tuple[str, int, int, int, int], BatchAck] = {}
        bits: dict[tuple[str, int, int, int, int], int] = {}
        for popped in batch:
            handle = popped.handle
            key = (handle.retry, handle.queue_id, handle.first_offset, handle.pop_time_ms, handle.invisible_ms)
            bits[key] = bits.get(key, 0) | 1 << (_offset(handle) - handle.first_offset)
            acks[key] = BatchAck(
                c=self._instance.names.whole(self._group),
                t=self._instance.names.whole(target.topic),
                r=handle.retry,
                so=handle.first_offset,
                q=handle.queue_id,
                rq=handle.revive_queue_id,
                pt=handle.pop_time_ms,
                it=handle.invisible_ms,
            )
        for key, ack in acks.items():
            ack.b = bits[key].to_bytes((bits[key].bit_length() + 7) // 8, "little")
        body = dumps(BatchAckMessageRequestBody(target.broker_name, list(acks.values())))
        self._success(await self._ask(target, RequestCode.BATCH_ACK_MESSAGE, None, body), target)

    async def change_invisible(self, popped: PoppedMessage, invisible_s: float) -> None:
        """Make a message invisible for `invisible_s` from now on, which gives it a new handle."""
        handle, target = popped.handle, Target(popped.topic, popped.handle.broker_name)
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._group,
            topic=self._stored_topic(popped),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=_offset(handle),
            invisible_time=round(invisible_s * 1000),
            lite_topic=self._lite_topic(popped),
            broker_name=target.broker_name,
        )
        now = self._instance.clock.monotonic()
        response = self._success(await self._ask(target, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header), target)
        answer = header_of(response, ChangeInvisibleTimeResponseHeader)
        renewed = handle._replace(
            first_offset=_offset(handle),
            pop_time_ms=answer.pop_time,
            invisible_ms=answer.invisible_time,
            revive_queue_id=answer.revive_qid,
        )
        renew_handle(popped, renewed, now + answer.invisible_time / 1000)

    def _stored_topic(self, popped: PoppedMessage) -> str:
        """Return the topic in which the broker has a message, by its whole name."""
        whole = self._instance.names.whole
        try:
            return real_topic(whole(popped.topic), whole(self._group), popped.handle.retry)
        except RequestError as error:
            raise ClientError(str(error)) from None

    def _lite_topic(self, popped: PoppedMessage) -> str | None:
        """Return the lite topic that a message was popped from; None if it was popped from the topic itself."""
        return popped.lite_topic if self.is_lite else None

    async def _ask(
        self, target: Target, code: int, header: Header | None, body: bytes = b"", *, timeout_s: float | None = None
    ) -> ReceivedResponse:
        if self._instance.master_address(target.broker_name) is None:
            await self._instance.refresh_route(target.topic)
            if self._instance.master_address(target.broker_name) is None:
                raise BrokerNotFound(target.broker_name)
        return await self._instance.invoke_master(target.broker_name, code, header, body, timeout_s=timeout_s)

    def _success(self, response: ReceivedResponse, target: Target) -> ReceivedResponse:
        if response.code == ResponseCode.SUCCESS:
            return response
        address = self._instance.master_address(target.broker_name) or target.broker_name
        raise refusal(response.code, response.remark, address)


def _offset(handle: PopHandle) -> int:
    return handle.first_offset if handle.queue_offset is None else handle.queue_offset


def _renamed(popped: PoppedMessage, names: WireNames) -> PoppedMessage:
    """Return a message that was read, with the application's names."""
    message = popped.message
    popped.topic, message.topic = names.bare(popped.topic), names.bare(message.topic)
    message.queue = names.bare_queue(message.queue)
    return popped
