"""ReceiveMessage: a pop at one broker, held there until a message comes, and the stream of what it took.

Nothing that was popped is lost while it waits for its time: if the client is gone or does not read, the messages are
released, and redelivered soon.
Source: RocketMQ 5.5.0, `ReceiveMessageActivity`, `ReceiveMessageResponseStreamWriter`, `PopMessageResultFilterImpl`,
`ConsumerProcessor.popMessage`, `popLiteMessage`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, NamedTuple

from proxy.activity.lite import LiteActivity
from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.receipts import Receipt
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.convert.client_types import is_lite
from proxy.convert.filters import subscription_of
from proxy.convert.outgoing import encoded_topic, encoder
from proxy.convert.settings import max_attempts
from proxy.handles.held_handles import Held
from proxy.handles.renewal import Renewal
from proxy.server.call import Call
from proxy.server.write_limit import Answer
from proxy.status import OK, Refusal, status, status_of
from proxy.validation import check_invisible, group_of, topic_of
from sprocket.client.errors import ClientError
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.encoding import BYTES, encoded_time, octets, tag
from sprocket.grpc_wire.times import duration_ms
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.lite import PopLiteMessageRequestHeader
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from sprocket.remoting.message import properties as names

logger = logging.getLogger(__name__)

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
        lite: LiteActivity,
        spawn: Callable[[Coroutine[object, object, None]], "asyncio.Task[None]"],
    ) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._clients = clients
        self._renewal = renewal
        self._config = config
        self._lite = lite
        self._spawn = spawn
        self._round_robin: dict[str, int] = {}

    async def receive_message(self, call: Call, request: wire.ReceiveMessageRequest, write: Answer) -> None:
        """Answer with a status, then the messages, then the time of delivery."""
        try:
            popped = await self._receive(call, request, write)
            if not popped:
                await write(_status(status(wire.MESSAGE_NOT_FOUND, "no new message")))
        except (Refusal, ClientError) as error:
            await write(_status(status_of(error)))
        now_ms = self._brokers.instance.clock.wall_ms()
        await write(octets(_DELIVERY, encoded_time(now_ms)))

    async def _receive(self, call: Call, request: wire.ReceiveMessageRequest, write: Answer) -> bool:
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
        source = self._source(call, topic, group)
        group_config = await self._metadata.group(group) or SubscriptionGroupConfig(group)
        broker_name = await self._broker(topic, request.message_queue.broker.name)
        self._clients.seen(call.client_id, call.account)
        max_messages = max(1, min(request.batch_size, _MAX_MESSAGES))
        attempt_id = request.attempt_id if request.HasField("attempt_id") else None
        header: PopMessageRequestHeader | PopLiteMessageRequestHeader
        if source.is_lite:
            await self._lite.ensure_known(call.client_id, group, topic, broker_name)
            header = PopLiteMessageRequestHeader(
                client_id=call.client_id, consumer_group=group, topic=topic, max_msg_num=max_messages,
                invisible_time=invisible_ms, poll_time=wait_ms, attempt_id=attempt_id,
                born_time=self._brokers.instance.clock.wall_ms(),  # RocketMQ's brokers take 0 for a time long past
            )  # fmt: skip
        else:
            header = PopMessageRequestHeader(
                consumer_group=group, topic=topic, queue_id=-1, max_msg_nums=max_messages,
                invisible_time=invisible_ms, poll_time=wait_ms,
                born_time=0,  # the broker's own time: clocks need not agree
                init_mode=_FROM_END, exp_type=wanted.expression_type, exp=wanted.sub_string,
                order=group_config.consume_message_orderly, attempt_id=attempt_id,
            )  # fmt: skip
        # What cannot be written is not popped: brokers may count it as delivered.
        write.check_room()
        asked_at = self._brokers.instance.clock.monotonic()

        def popped_of(response: ReceivedResponse) -> list[PoppedMessage]:
            return self._brokers.popped(response, topic, broker_name, asked_at, is_lite=source.is_lite)

        def unread(response: ReceivedResponse) -> None:
            self._release_unread(response, popped_of, source)

        response = await self._brokers.pop(broker_name, header, wait_ms / 1000, unread, call.caller)
        popped = popped_of(response)
        if not popped:
            return False
        kept = self._matching(popped, wanted, source, group_config)
        del popped
        if kept:
            await self._deliver(call, source, kept, len(response.body), write, renews)
        else:
            await write(_status(status(wire.MESSAGE_NOT_FOUND, "no match message")))
        return True

    def _source(self, call: Call, topic: str, group: str) -> "_Source":
        """Return what a client receives from.  Raises Refusal if it has too many messages of lite topics."""
        client = self._clients.get(call.client_id)
        if client is None or not is_lite(client.reported):
            return _Source(topic, group)
        held = self._renewal.held.count_of(call.client_id)
        if held > self._config.max_lite_renew_num_per_channel:
            what = f"The client [{call.client_id}] has too many unacked messages. Unacked count: {held}"
            raise Refusal(wire.FORBIDDEN, what)
        return _Source(topic, group, is_lite=True)

    def _release_unread(
        self,
        response: ReceivedResponse,
        popped_of: Callable[[ReceivedResponse], list[PoppedMessage]],
        source: "_Source",
    ) -> None:
        """Release what a pop took for a call that has ended."""
        try:
            for message in popped_of(response):
                self._release(source.receipt(message), source)
        except (Refusal, ClientError):
            return  # nothing was popped

    def _release(self, receipt: Receipt, source: "_Source") -> None:
        """Let a message be redelivered soon that no client got; this delivery is not counted."""
        # To suspend a message of a lite topic puts off all that was popped with it, also what has been written.
        suspend = not source.is_lite
        self._spawn(self._renewal.release_receipt(receipt, source.group, source.topic, suspend=suspend))

    async def _deliver(
        self,
        call: Call,
        source: "_Source",
        messages: list[PoppedMessage],
        size: int,
        write: Answer,
        renews: bool,
    ) -> None:
        """Write `messages`, and renew them from now on if `renews`; those that cannot be written are released.

        `messages` is empty then: a body that was inflated does not wait for the others.
        Raises Refusal if the client has left too much unread to keep `size` bytes for it.
        """
        receipts = [source.receipt(message) for message in messages]
        given = [receipt.encode() for receipt in receipts]
        now_ms = self._brokers.instance.clock.wall_ms()
        # Nothing would end the renewals for a client that has ended while it was waiting.
        is_alive = self._clients.get(call.client_id) is not None
        held = self._hold(call, source, messages, receipts, given, now_ms) if renews and is_alive else ()
        written, field = 0, encoded_topic(source.topic)

        def release_written() -> None:
            for number, receipt in enumerate(receipts[:written]):
                if not held or self._renewal.held.drop(held[number]):  # else it is acknowledged
                    # The client may have got it.
                    self._spawn(self._renewal.release_receipt(receipt, source.group, source.topic))

        try:
            write.hold(size, release_written)
            await write(_OK)
            messages.reverse()
            for handle in given:
                await write(_encode(messages.pop().message, field, handle, now_ms))
                written += 1
        finally:
            for one in held[written:]:
                self._renewal.held.drop(one)
            for receipt in receipts[written:]:
                self._release(receipt, source)

    def _hold(
        self,
        call: Call,
        source: "_Source",
        messages: Sequence[PoppedMessage],
        receipts: Sequence[Receipt],
        given: Sequence[str],
        now_ms: int,
    ) -> list[Held]:
        """Renew messages from now on while their client lives."""
        client_id, peer, add = call.client_id, call.peer, self._renewal.held.add
        topic, group = source.topic, source.group
        now = self._brokers.instance.clock.monotonic()
        held = []
        for message, receipt, handle in zip(messages, receipts, given, strict=True):
            stored = message.message
            one = Held(
                client_id, group, topic, stored.message_id, handle, receipt, now_ms, stored.reconsume_times, peer, now
            )
            add(one)
            held.append(one)
        return held

    def _matching(
        self,
        popped: list[PoppedMessage],
        wanted: SubscriptionData,
        source: "_Source",
        group_config: SubscriptionGroupConfig,
    ) -> list[PoppedMessage]:
        """Return the messages to deliver; acknowledge those with other tags, forward those without attempts left."""
        tags = set(wanted.tags_set or ())
        limit = max_attempts(group_config)
        topic, group = source.topic, source.group
        kept = []
        for message in popped:
            if tags and message.tags not in tags:
                self._spawn(self._quietly(self._brokers.ack(source.receipt(message), group, topic)))
            elif message.reconsume_times >= limit:
                self._spawn(self._quietly(
                    self._brokers.forward_to_dead_letters(source.receipt(message), message.message_id, group, topic)
                ))  # fmt: skip
            else:
                kept.append(message)
        return kept

    async def _quietly(self, work: Awaitable[object]) -> None:
        try:
            await work
        except (Refusal, ClientError) as error:
            peer_lines.info(logger, "", "event=after_pop_failed reason=%r", str(error))

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
        readable = await self._brokers.readable(topic)
        if wanted in readable:
            return wanted
        turn = self._round_robin[topic] = self._round_robin.get(topic, -1) + 1
        return readable[turn % len(readable)]


class _Source(NamedTuple):
    """What a client receives from: a topic, or its lite topics."""

    topic: str
    group: str
    is_lite: bool = False

    def receipt(self, message: PoppedMessage) -> Receipt:
        """Return the receipt of a popped message."""
        if self.is_lite:
            lite_topic = message.properties.get(names.LITE_TOPIC, "")
            return Receipt(message.handle, message.message.physical_offset, lite_topic)
        return Receipt(message.handle, message.message.physical_offset)


def _status(of: wire.Status) -> bytes:
    return bytes(wire.ReceiveMessageResponse(status=of).SerializeToString())


_OK: Final = _status(OK)
_DELIVERY: Final = tag(wire.ReceiveMessageResponse, "delivery_timestamp", BYTES)
_encode: Final = encoder(wire.ReceiveMessageResponse)
