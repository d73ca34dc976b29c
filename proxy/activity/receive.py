"""ReceiveMessage: a pop at one broker, held there until a message comes, and the stream of what it took.

Nothing that was popped is lost while it waits for its time: if the client is gone or does not read, the messages are
released, and redelivered soon.
Source: RocketMQ 5.3.3, `ReceiveMessageActivity`, `ReceiveMessageResponseStreamWriter`, `PopMessageResultFilterImpl`,
`ConsumerProcessor.popMessage`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.receipts import Receipt
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.convert.filters import subscription_of
from proxy.convert.outgoing import outgoing
from proxy.convert.received_bytes import encode_received, encoded_topic
from proxy.convert.settings import max_attempts
from proxy.handles.held_handles import Held
from proxy.handles.renewal import Renewal
from proxy.server.call import Call
from proxy.status import Refusal, status, status_of
from proxy.validation import check_invisible, group_of, topic_of
from sprocket.client.errors import ClientError
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration_ms, timestamp
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.headers.pop import PopMessageRequestHeader

logger = logging.getLogger(__name__)

# Takes a part of the answer, or its bytes.
Write = Callable[[wire.ReceiveMessageResponse | bytes], Awaitable[None]]

# `ProxyUtils.MAX_MSG_NUMS_FOR_POP_REQUEST`
_MAX_MESSAGES: Final = 32
# Messages that the proxy renews for one client.
MAX_HELD: Final = 16_384
# A new group begins at the end of a topic.  Source: `ConsumeInitMode.MAX`.
_FROM_END: Final = 1
# Clients before this version take BAD_REQUEST for a time that is too short.
_POLLING_CODE_SINCE: Final = "5.0.3"


class ReceiveActivity:
    """Receiver of messages for clients; `spawn` runs work until the proxy ends."""

    def __init__(
        self,
        brokers: Brokers,
        metadata: Metadata,
        clients: Clients,
        renewal: Renewal,
        config: ProxyConfig,
        spawn: Callable[[Coroutine[object, object, None]], "asyncio.Task[None]"],
    ) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._clients = clients
        self._renewal = renewal
        self._config = config
        self._spawn = spawn
        self._round_robin: dict[str, int] = {}

    async def receive_message(self, call: Call, request: wire.ReceiveMessageRequest, write: Write) -> None:
        """Answer with a status, then the messages, then the time of delivery."""
        try:
            popped = await self._receive(call, request, write)
            if not popped:
                await write(_status(status(wire.MESSAGE_NOT_FOUND, "no new message")))
        except (Refusal, ClientError) as error:
            await write(_status(status_of(error)))
        now_ms = self._brokers.instance.clock.wall_ms()
        await write(wire.ReceiveMessageResponse(delivery_timestamp=timestamp(now_ms)))

    async def _receive(self, call: Call, request: wire.ReceiveMessageRequest, write: Write) -> bool:
        """Pop and write the messages.  Return whether anything was written."""
        config = self._config
        wait_ms = self._wait_ms(call, request)
        topic, group = topic_of(request.message_queue.topic), group_of(request.group)
        renews = config.enable_proxy_auto_renew and request.auto_renew
        if renews:
            held = self._renewal.held.count_of(call.client_id)
            if held >= MAX_HELD:
                raise Refusal(wire.TOO_MANY_REQUESTS, f"{held} messages are not acknowledged, acknowledge them first")
            invisible_ms = config.default_invisible_time_mills
        else:
            invisible_ms = duration_ms(request.invisible_duration)
            check_invisible(invisible_ms, config.min_invisible_time_mills_for_recv, config.max_invisible_time_mills)
        wanted = subscription_of(topic, request.filter_expression)
        group_config = await self._metadata.group(group) or SubscriptionGroupConfig(group)
        broker_name = await self._broker(topic, request.message_queue.broker.name)
        self._clients.seen(call.client_id)
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=max(1, min(request.batch_size, _MAX_MESSAGES)),
            invisible_time=invisible_ms,
            poll_time=wait_ms,
            born_time=0,  # the broker's own time: clocks need not agree
            init_mode=_FROM_END,
            exp_type=wanted.expression_type,
            exp=wanted.sub_string,
            order=group_config.consume_message_orderly,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        popping = self._spawn_pop(broker_name, header, wait_ms)
        try:
            popped = await asyncio.shield(popping)
        except asyncio.CancelledError:
            popping.add_done_callback(lambda done: self._nobody_there(done, group, topic))
            raise
        if not popped:
            return False
        delivery = _Delivery(self, call, request, group, topic, popped)
        await delivery.write(write, self._matching(popped, wanted, group, topic, group_config), renews)
        return True

    def _spawn_pop(
        self, broker_name: str, header: PopMessageRequestHeader, wait_ms: int
    ) -> "asyncio.Future[list[PoppedMessage]]":
        """Start a pop that outlives its call: the broker may take messages for it at any time."""
        answer: asyncio.Future[list[PoppedMessage]] = asyncio.get_running_loop().create_future()

        async def pop() -> None:
            try:
                found = await self._brokers.pop(broker_name, header, wait_ms / 1000)
            except (Refusal, ClientError) as error:
                answer.set_exception(error)
            except BaseException:
                answer.cancel()
                raise
            else:
                answer.set_result(found)

        self._spawn(pop())
        return answer

    def _nobody_there(self, popping: "asyncio.Future[list[PoppedMessage]]", group: str, topic: str) -> None:
        """Release what a pop took for a call that has ended."""
        if popping.cancelled() or popping.exception() is not None:
            return
        for message in popping.result():
            self.release(message, group, topic)

    def release(self, message: PoppedMessage, group: str, topic: str) -> None:
        """Let a message be redelivered soon that no client got."""
        self._spawn(self._renewal.release_receipt(receipt_of(message), group, topic))

    def _matching(
        self,
        popped: list[PoppedMessage],
        wanted: SubscriptionData,
        group: str,
        topic: str,
        group_config: SubscriptionGroupConfig,
    ) -> list[PoppedMessage]:
        """Return the messages to deliver; acknowledge those with other tags, forward those without attempts left."""
        tags = set(wanted.tags_set or ())
        limit = max_attempts(group_config)
        kept = []
        for message in popped:
            if tags and message.tags not in tags:
                self._spawn(self._quietly(self._brokers.ack(receipt_of(message), group, topic)))
            elif message.reconsume_times >= limit:
                self._spawn(self._quietly(
                    self._brokers.forward_to_dead_letters(receipt_of(message), message.message_id, group, topic)
                ))  # fmt: skip
            else:
                kept.append(message)
        return kept

    async def _quietly(self, work: Awaitable[object]) -> None:
        try:
            await work
        except (Refusal, ClientError) as error:
            peer_lines.info(logger, "", "event=after_pop_failed reason=%r", str(error))

    def hold(self, call: Call, group: str, topic: str, message: PoppedMessage, receipt: Receipt, given: str) -> None:
        """Renew a message from now on while its client lives."""
        self._renewal.held.add(
            Held(
                client_id=call.client_id,
                group=group,
                topic=topic,
                message_id=message.message_id,
                given=given,
                receipt=receipt,
                received_ms=self._brokers.instance.clock.wall_ms(),
                received_at=self._brokers.instance.clock.monotonic(),
                peer=call.peer,
                reconsume_times=message.reconsume_times,
            )
        )

    def drop(self, call: Call, group: str, message: PoppedMessage, given: str) -> None:
        """Stop renewing a message."""
        self._renewal.held.take(call.client_id, group, message.message_id, given)

    def convert(
        self, message: PoppedMessage, topic: str, topic_field: bytes, given: str
    ) -> wire.ReceiveMessageResponse | bytes:
        """Return the part of the answer with a message; `topic_field` is `topic` encoded."""
        encoded = encode_received(message.message, topic_field, given)
        if encoded is not None:
            return encoded
        now_ms = self._brokers.instance.clock.wall_ms()
        return wire.ReceiveMessageResponse(message=outgoing(message.message, topic, given, now_ms))

    def _wait_ms(self, call: Call, request: wire.ReceiveMessageRequest) -> int:
        """Return how long the broker may hold the pop.  Raises Refusal if the call has too little time."""
        config = self._config
        low = config.grpc_client_consumer_min_long_polling_timeout_millis
        high = config.grpc_client_consumer_max_long_polling_timeout_millis
        remaining = call.remaining_ms
        wait_ms = high
        if request.HasField("long_polling_timeout"):
            wait_ms = duration_ms(request.long_polling_timeout)
        elif remaining is not None:
            wait_ms = remaining - self._request_timeout_ms(call) // 2
        wait_ms = min(max(wait_ms, low), high)
        if remaining is None or wait_ms <= remaining:
            return wait_ms
        if remaining >= low:
            return remaining
        is_old = not call.client_version or call.client_version < _POLLING_CODE_SINCE
        raise Refusal(
            wire.BAD_REQUEST if is_old else wire.ILLEGAL_POLLING_TIME,
            "The deadline time remaining is not enough for polling, please check network condition",
        )

    def _request_timeout_ms(self, call: Call) -> int:
        client = self._clients.get(call.client_id)
        reported = None if client is None else client.reported
        return 0 if reported is None else duration_ms(reported.request_timeout)

    async def _broker(self, topic: str, wanted: str) -> str:
        """Return the broker that the client named, if it has queues to read; else one in turn."""
        route = await self._brokers.route(topic)
        readable = sorted({queue.broker_name for queue in route.subscribe})
        readable = [name for name in readable if self._brokers.instance.master_address(name) is not None]
        if not readable:
            raise Refusal(wire.FORBIDDEN, "no readable queue")
        if wanted in readable:
            return wanted
        turn = self._round_robin[topic] = self._round_robin.get(topic, -1) + 1
        return readable[turn % len(readable)]


class _Delivery:
    """Messages of one pop on their way to a client."""

    def __init__(
        self,
        activity: ReceiveActivity,
        call: Call,
        request: wire.ReceiveMessageRequest,
        group: str,
        topic: str,
        popped: list[PoppedMessage],
    ) -> None:
        self._activity = activity
        self._call = call
        self._group = group
        self._topic = topic

    async def write(self, write: Write, messages: list[PoppedMessage], renews: bool) -> None:
        """Write `messages`; those that cannot be written are released."""
        if not messages:
            await write(_status(status(wire.MESSAGE_NOT_FOUND, "no match message")))
            return
        written = 0
        receipts = [receipt_of(message) for message in messages]
        given = [receipt.encode() for receipt in receipts]
        if renews:
            for message, receipt, handle in zip(messages, receipts, given, strict=True):
                self._activity.hold(self._call, self._group, self._topic, message, receipt, handle)
        try:
            await write(_OK)
            convert, topic, field = self._activity.convert, self._topic, encoded_topic(self._topic)
            for message, handle in zip(messages, given, strict=True):
                await write(convert(message, topic, field, handle))
                written += 1
        finally:
            for message, handle in list(zip(messages, given, strict=True))[written:]:
                self._activity.drop(self._call, self._group, message, handle)
                self._activity.release(message, self._group, self._topic)


def receipt_of(message: PoppedMessage) -> Receipt:
    """Return the receipt of a popped message."""
    return Receipt(message.handle, message.message.physical_offset)


def _status(of: wire.Status) -> wire.ReceiveMessageResponse:
    return wire.ReceiveMessageResponse(status=of)


_OK: Final = _status(status(wire.OK)).SerializeToString()
