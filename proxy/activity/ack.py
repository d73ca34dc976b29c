"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of a received message.

Source: RocketMQ 5.5.0, `AckMessageActivity`, `ChangeInvisibleDurationActivity`, `ForwardMessageToDLQActivity`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, NamedTuple

from proxy.brokers.brokers import Brokers
from proxy.brokers.caller_connections import Caller
from proxy.brokers.receipts import Receipt, parse_receipt
from proxy.clients.registry import Clients
from proxy.config import ProxyConfig
from proxy.convert.answers import AckResult, encoded_acks
from proxy.handles.held_handles import Held
from proxy.handles.renewal import Renewal
from proxy.server.call import Call
from proxy.status import OK, Refusal, code_of, status, status_of
from proxy.validation import check_invisible, check_lite_topic, group_of, topic_of
from sprocket.client.errors import ClientError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration_ms

_MAX_ENTRIES: Final = 4096
_OPEN: Final = wire.Status()  # of what no broker has answered yet
_Named = wire.AckMessageEntry | wire.ChangeInvisibleDurationRequest | wire.ForwardMessageToDeadLetterQueueRequest


class _Entry(NamedTuple):
    """One message to acknowledge: its place in the request, its newest receipt, and what was held."""

    place: int
    receipt: Receipt
    held: Held | None


class AckActivity:
    """Acknowledgements of clients, and the opposite."""

    def __init__(self, brokers: Brokers, clients: Clients, renewal: Renewal, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._clients = clients
        self._renewal = renewal
        self._config = config

    async def ack_message(self, call: Call, request: wire.AckMessageRequest) -> bytes:
        """Acknowledge the messages of a request; each has its own status.  Return the bytes of the answer."""
        topic, group, entries = topic_of(request.topic), group_of(request.group), request.entries
        if len(entries) > _MAX_ENTRIES:
            raise Refusal(wire.PAYLOAD_TOO_LARGE, f"{len(entries)} entries, the max is {_MAX_ENTRIES}")
        self._clients.seen(call.client_id, call.account)
        if len(entries) == 1:
            return encoded_acks([await self._ack_single(call, group, topic, entries[0])])
        outcomes: list[wire.Status] = [_OPEN] * len(entries)
        of_broker: defaultdict[str, list[_Entry]] = defaultdict(list)
        try:
            await self._take_all(call, group, entries, of_broker, outcomes)
            await asyncio.gather(
                *(self._ack_at(call.caller, batch, group, topic, outcomes) for batch in of_broker.values())
            )
        except BaseException:
            for entry in chain.from_iterable(of_broker.values()):
                if outcomes[entry.place] is _OPEN:
                    self._renewal.hold_again(entry.held)
            raise
        return encoded_acks([
            AckResult(outcome, entry.message_id, entry.receipt_handle)
            for entry, outcome in zip(entries, outcomes, strict=True)
        ])  # fmt: skip

    async def _take_all(
        self,
        call: Call,
        group: str,
        entries: Sequence[wire.AckMessageEntry],
        of_broker: defaultdict[str, list[_Entry]],
        outcomes: list[wire.Status],
    ) -> None:
        """Put what can be acknowledged into `of_broker`, and why others cannot into `outcomes`."""
        now_ms = self._brokers.instance.clock.wall_ms()
        for index, entry in enumerate(entries):
            try:
                receipt, held = await self._take(call, group, entry)
                if receipt.is_expired(now_ms):
                    raise Refusal(wire.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
            except Refusal as refused:
                outcomes[index] = status_of(refused)
            else:
                of_broker[receipt.handle.broker_name].append(_Entry(index, receipt, held))

    async def _take(self, call: Call, group: str, named: _Named) -> tuple[Receipt, Held | None]:
        """Return the newest receipt of the message that a request names, and what was held.  Raises Refusal."""
        lite_topic = named.lite_topic
        if lite_topic:
            check_lite_topic(lite_topic, self._config.max_lite_topic_size)
        receipt, held = await self._renewal.take(call.client_id, group, named.message_id, named.receipt_handle)
        if lite_topic and not receipt.lite_topic:
            receipt = receipt._replace(lite_topic=lite_topic)
        return receipt, held

    @contextmanager
    def _kept(self, held: Held | None) -> Iterator[None]:
        """Hold again what was taken if the block fails, or its call is cancelled."""
        try:
            yield
        except ClientError as error:
            self._renewal.put_back(held, error)
            raise
        except asyncio.CancelledError:
            self._renewal.hold_again(held)
            raise

    async def _ack_single(self, call: Call, group: str, topic: str, entry: wire.AckMessageEntry) -> AckResult:
        """Acknowledge the message of a request with one, as consumers usually do, in the task of the call."""
        message_id, given = entry.message_id, entry.receipt_handle
        outcome = OK
        try:
            receipt, held = await self._take(call, group, entry)
            with self._kept(held):
                await self._brokers.ack(receipt, group, topic, call.caller)
        except (Refusal, ClientError) as error:
            outcome = status_of(error)
        return AckResult(outcome, message_id, given)

    async def _ack_at(
        self, caller: Caller, batch: "list[_Entry]", group: str, topic: str, outcomes: list[wire.Status]
    ) -> None:
        """Acknowledge messages of one broker, and put the status of each into `outcomes`."""
        if len(batch) == 1 or any(entry.receipt.handle.is_ordered or entry.receipt.lite_topic for entry in batch):
            await asyncio.gather(*(self._ack_one(caller, entry, group, topic, outcomes) for entry in batch))
            return
        try:
            await self._brokers.ack_batch([entry.receipt for entry in batch], group, topic, caller)
        except (Refusal, ClientError) as error:
            for entry in batch:
                self._renewal.put_back(entry.held, error)
                outcomes[entry.place] = status_of(error)
        else:
            for entry in batch:
                outcomes[entry.place] = OK

    async def _ack_one(
        self, caller: Caller, entry: "_Entry", group: str, topic: str, outcomes: list[wire.Status]
    ) -> None:
        try:
            await self._brokers.ack(entry.receipt, group, topic, caller)
        except (Refusal, ClientError) as error:
            self._renewal.put_back(entry.held, error)
            outcomes[entry.place] = status_of(error)
        else:
            outcomes[entry.place] = OK

    async def change_invisible_duration(
        self, call: Call, request: wire.ChangeInvisibleDurationRequest
    ) -> wire.ChangeInvisibleDurationResponse:
        """Make a message invisible from now on, and answer with its new handle."""
        topic, group = topic_of(request.topic), group_of(request.group)
        invisible_ms = duration_ms(request.invisible_duration)
        check_invisible(invisible_ms, 0, self._config.max_invisible_time_mills)
        self._clients.seen(call.client_id, call.account)
        parse_receipt(request.receipt_handle)
        receipt, held = await self._take(call, group, request)
        with self._kept(held):
            changed = await self._brokers.change_invisible(receipt, group, topic, invisible_ms, suspend=request.suspend)
        return wire.ChangeInvisibleDurationResponse(status=OK, receipt_handle=changed.encode())

    async def forward_message_to_dead_letter_queue(
        self, call: Call, request: wire.ForwardMessageToDeadLetterQueueRequest
    ) -> wire.ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter of its group."""
        topic, group = topic_of(request.topic), group_of(request.group)
        self._clients.seen(call.client_id, call.account)
        receipt, held = await self._take(call, group, request)
        with self._kept(held):
            answer = await self._brokers.forward_to_dead_letters(receipt, request.message_id, group, topic)
        message = answer.remark or str(answer.code)
        return wire.ForwardMessageToDeadLetterQueueResponse(status=status(code_of(answer.code), message))
