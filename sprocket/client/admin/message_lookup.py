"""Lookup of single messages by key, unique key, offset message id, or offset in a queue.

Source: RocketMQ 5.3.3, `MQAdminImpl.queryMessage`, `MQAdminImpl.viewMessage`, `MessageDecoder.decodeMessageId`,
`PullAPIWrapper.processPullResult`.
"""

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.stored_message import StoredMessage, records, stored_messages
from sprocket.client.answers import header_of
from sprocket.client.connection.topic_route import topic_route
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.route import addresses_of
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import QueryMessageRequestHeader, ViewMessageRequestHeader
from sprocket.remoting.headers.offset import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.message import properties as names

MAX_TIMESTAMP: Final = (1 << 63) - 1
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_PULL_SUBSCRIPTION: Final = 0x4
_PULL_MESSAGES: Final = 32
_HEX_BYTES: Final = (16, 28)  # address of 4 or 16 bytes, port 4, offset 8

T = TypeVar("T")


class MessageLookup:
    """Client of the brokers that `admin` finds.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def by_key(
        self, topic: str, key: str, max_messages: int = 64, begin_ms: int = 0, end_ms: int = MAX_TIMESTAMP,
        route_topic: str | None = None,
    ) -> list[ReceivedMessage]:  # fmt: skip
        """Return messages of `topic` that have `key`, at most `max_messages` of each broker.

        The brokers are those on the route of `route_topic`, else of `topic`.
        """
        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=max_messages, begin_timestamp=begin_ms, end_timestamp=end_ms
        )
        return await self._query(header, route_topic or topic, lambda message: key in message.keys)

    async def by_unique_key(self, topic: str, key: str, route_topic: str | None = None) -> list[ReceivedMessage]:
        """Return messages of `topic` with the id that their producer gave, the oldest first.

        Brokers index messages of a batch by the id of the batch: it finds them all, their own ids find none.
        """
        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=32, begin_timestamp=0, end_timestamp=MAX_TIMESTAMP, is_unique_key="true"
        )
        found = await self._query(
            header, route_topic or topic, lambda message: message.properties.get(names.UNIQ_KEY) == key
        )
        return sorted(found, key=lambda message: message.store_timestamp_ms)

    async def _query(
        self, header: QueryMessageRequestHeader, route_topic: str, is_wanted: Callable[[ReceivedMessage], bool]
    ) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        refusal: AdminError | None = None
        for name, address in addresses_of((await self._admin.topic_route(route_topic)).broker_datas).items():
            try:
                response = await self._admin.ask(address, RequestCode.QUERY_MESSAGE, header)
            except AdminError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    refusal = error
                continue
            # Brokers compare hashes, so messages with another key or topic must be dropped.
            messages = _messages(response.body, header.topic, name)
            found += [message for message in messages if message.topic == header.topic and is_wanted(message)]
        if refusal is not None and not found:
            raise refusal
        return found

    async def by_offset_id(self, topic: str, message_id: str) -> ReceivedMessage:
        """Return the message with an offset message id, from the broker whose address is part of it."""
        address, offset = parse_offset_id(message_id)
        header = ViewMessageRequestHeader(topic=topic, offset=offset)
        response = await self._admin.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        messages = _messages(response.body, topic, "")
        if len(messages) != 1:
            raise AdminError(f"{address} answered with {len(messages)} messages for {message_id}")
        return messages[0]

    async def by_id(self, topic: str, message_id: str, route_topic: str | None = None) -> ReceivedMessage | None:
        """Return the message with an id of either kind: offset message id, else unique key; None if there is none."""
        # Raises AdminError for a text that is no offset id; and a unique key of as many digits may look like one.
        with suppress(AdminError):
            return await self.by_offset_id(topic, message_id)
        found = await self.by_unique_key(topic, message_id, route_topic)
        return found[0] if found else None

    async def queues(self, topic: str, route_topic: str | None = None) -> list[tuple[MessageQueue, str]]:
        """Return the queues of `topic` that can be read, each with the address of its broker.

        Those of a static topic are its logical queues.
        """
        route = await self._admin.topic_route(route_topic or topic)
        addresses = addresses_of(route.broker_datas)
        if route.topic_queue_mapping_by_broker:
            known = topic_route(topic, route)
            placed = [(queue, addresses.get(known.broker_of(queue))) for queue in known.subscribe]
            return [(queue, address) for queue, address in placed if address is not None]
        return [
            (MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id), addresses[data.broker_name])
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if data.broker_name in addresses
            for queue_id in range(data.read_queue_nums)
        ]

    async def bounds(
        self, queue: MessageQueue, address: str, begin_ms: int | None = None, end_ms: int | None = None
    ) -> tuple[int, int]:
        """Return the first offset of a queue and the offset after its last, for all messages or a range of time."""
        return (
            await self._bound(queue, address, begin_ms, RequestCode.GET_MIN_OFFSET),
            await self._bound(queue, address, end_ms, RequestCode.GET_MAX_OFFSET),
        )

    async def _bound(self, queue: MessageQueue, address: str, time_ms: int | None, code: RequestCode) -> int:
        topic, queue_id = queue.topic, queue.queue_id
        if time_ms is not None:
            return await self._admin.offset_at(address, topic, queue_id, time_ms)
        if code is RequestCode.GET_MAX_OFFSET:
            return await self._admin.end_of_queue(address, topic, queue_id)
        header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
        # -1 for a queue of batches that never had a message.
        return max(0, (await self._admin.ask_header(address, code, GetMinOffsetResponseHeader, header)).offset)

    async def messages(
        self, queue: MessageQueue, address: str, offset: int, tags: str = "*", max_messages: int = _PULL_MESSAGES, *,
        expression_type: str = "TAG",
    ) -> tuple[list[ReceivedMessage], int]:  # fmt: skip
        """Return messages of a queue with `tags` from `offset` on, and the next offset.  Commits no offset.

        With `expression_type` SQL92 `tags` is an SQL92 expression.
        If there is nothing to read, the next offset is `offset` itself.
        """
        body, header, next_offset = await self._pull(queue, address, offset, tags, max_messages, expression_type)
        if header is None:
            return [], next_offset
        return _messages(body, queue.topic, queue.broker_name, header.offset_delta or 0), next_offset

    async def stored(
        self, queue: MessageQueue, address: str, offset: int, tags: str = "*", max_messages: int = _PULL_MESSAGES
    ) -> tuple[list[StoredMessage], int]:
        """Return the same as `messages`, each message with the figures of its record."""
        body, header, next_offset = await self._pull(queue, address, offset, tags, max_messages, "TAG")
        if header is None:
            return [], next_offset
        try:
            return [
                message
                for record, place in records(body, queue.topic, queue.broker_name)
                for message in stored_messages(record, place, header)
            ], next_offset
        except ProtocolError as error:
            raise _no_messages(error) from None

    async def _pull(
        self, queue: MessageQueue, address: str, offset: int, tags: str, max_messages: int, expression_type: str
    ) -> tuple[bytes, PullMessageResponseHeader | None, int]:
        """Return the records of a pull, the response's header, None if it found none, and the next offset."""
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=max_messages, sys_flag=_PULL_SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0,
            subscription=tags, sub_version=0, expression_type=expression_type,
        )  # fmt: skip
        try:
            response = await self._admin.ask(address, RequestCode.PULL_MESSAGE, header)
        except AdminError as error:
            if error.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
                return b"", None, offset
            if error.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                return b"", None, int(error.fields.get("nextBeginOffset") or offset + max_messages)
            raise
        found = header_of(response, PullMessageResponseHeader, AdminError)
        return response.body, found, found.next_begin_offset

    def pages(
        self, queue: MessageQueue, address: str, start: int, end: int, tags: str = "*"
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield the messages of a queue from `start` to before `end`, in pages."""
        read = partial(self.messages, queue, address, tags=tags)
        return _pages(read, lambda message: message.queue_offset, start, end)

    def stored_pages(
        self, queue: MessageQueue, address: str, start: int, end: int, tags: str = "*"
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield the same as `pages`, each message with the figures of its record."""
        read = partial(self.stored, queue, address, tags=tags)
        return _pages(read, lambda stored: stored.message.queue_offset, start, end)


async def _pages(
    read: Callable[[int], Awaitable[tuple[list[T], int]]], offset_of: Callable[[T], int], start: int, end: int
) -> AsyncIterator[list[T]]:
    """Yield what `read` finds from `start` to before `end`; it returns messages and the next offset."""
    offset = start
    while offset < end:
        found, next_offset = await read(offset)
        if next_offset <= offset:
            return
        yield [one for one in found if offset_of(one) < end]
        offset = next_offset


def parse_offset_id(message_id: str) -> tuple[str, int]:
    """Return the broker's address and the physical offset of an offset message id.  Raises AdminError."""
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    port = int.from_bytes(raw[-12:-8], "big")
    offset = int.from_bytes(raw[-8:], "big", signed=True)
    if len(raw) not in _HEX_BYTES or not 0 < port < 1 << 16 or offset < 0:
        raise AdminError(f"{message_id!r} is no offset message id")
    address = ipaddress.ip_address(raw[:-12])
    return (f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"), offset


def _messages(body: bytes, topic: str, broker_name: str, offset_delta: int = 0) -> list[ReceivedMessage]:
    """Return the messages of adjacent records of any queues; `offset_delta` is added to their queue offsets."""
    try:
        return [
            message
            for record, queue in records(body, topic, broker_name)
            for message in decode_records(record, queue, offset_delta)
        ]
    except ProtocolError as error:
        raise _no_messages(error) from None


def _no_messages(error: ProtocolError) -> AdminError:
    return AdminError(f"the answer holds no messages: {error}")
