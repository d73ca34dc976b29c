"""What a consumer does that pops, over a socket."""

from dataclasses import dataclass
from typing import Any

import msgspec

from broker.server import Broker
from sprocket.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PeekMessageRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from sprocket.remoting.message.pop_extra_info import (
    PopHandle,
    parse_handle,
    parse_msg_offsets,
    parse_start_offsets,
    queue_key,
    real_topic,
    retry_kind,
)
from sprocket.remoting.message.properties import POP_CK, parse
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.record.record import Record, decode
from tests.broker.rig import GROUP, TOPIC, TestClient, stored

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


@dataclass(frozen=True)
class Message:
    """One popped message."""

    topic: str  # as the record says it
    body: bytes
    queue_id: int
    queue_offset: int
    properties: dict[str, str]
    handle: PopHandle

    @property
    def real_topic(self) -> str:
        """The topic that it lies in."""
        return real_topic(TOPIC if retry_kind(self.topic) != "0" else self.topic, GROUP, self.handle.retry)


def pop_header(**changes: Any) -> PopMessageRequestHeader:
    """A pop of any queue that does not want to be held."""
    header = PopMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=32, invisible_time=60_000, poll_time=0,
        born_time=0, init_mode=0,
    )  # fmt: skip
    return msgspec.structs.replace(header, **changes)


async def pop(client: TestClient, **changes: Any) -> ReceivedResponse:
    """One pop."""
    return await client.ask(RequestCode.POP_MESSAGE, pop_header(**changes))


async def popped(client: TestClient, **changes: Any) -> list[Message]:
    """The messages of one pop that finds some."""
    response = await pop(client, **changes)
    assert response.code == ResponseCode.SUCCESS, (response.code, response.remark)
    return messages_of(response)


def messages_of(response: ReceivedResponse) -> list[Message]:
    """The messages of an answer with their handles, made as RocketMQ's client makes them."""
    header = response.header(PopMessageResponseHeader)
    starts = parse_start_offsets(header.start_offset_info)
    offsets = parse_msg_offsets(header.msg_offset_info)
    found = []
    view, at = memoryview(response.body), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        record = decode(view[at : at + size])
        assert isinstance(record, Record), record
        at += size
        properties = parse(bytes(record.properties).decode())
        text = properties.get(POP_CK)
        if text is None:
            key = queue_key(retry_kind(record.topic), record.queue_id)
            assert record.queue_offset in offsets[key]
            handle = PopHandle(
                starts[key], header.pop_time, header.invisible_time, header.revive_qid, retry_kind(record.topic),
                "broker-a", record.queue_id, record.queue_offset,
            )  # fmt: skip
        else:
            handle = parse_handle(text)
        message = Message(record.topic, bytes(record.body), record.queue_id, record.queue_offset, properties, handle)
        found.append(message)
    assert sum(map(len, offsets.values())) == len(found)
    return found


async def ack(client: TestClient, message: Message, **changes: Any) -> ReceivedResponse:
    """Acknowledge one message."""
    header = AckMessageRequestHeader(
        consumer_group=GROUP, topic=message.real_topic, queue_id=message.queue_id,
        extra_info=message.handle.encode(), offset=message.queue_offset,
    )  # fmt: skip
    header = msgspec.structs.replace(header, **changes)
    return await client.ask(RequestCode.ACK_MESSAGE, header)


async def ack_batch(client: TestClient, *acks: BatchAck) -> ReceivedResponse:
    """Acknowledge messages of several pops."""
    return await client.ask(
        RequestCode.BATCH_ACK_MESSAGE, None, dumps(BatchAckMessageRequestBody("broker-a", list(acks)))
    )


async def change(client: TestClient, message: Message, invisible_ms: int, **changes: Any) -> ReceivedResponse:
    """Change the time at which a message is redelivered."""
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=GROUP, topic=message.real_topic, queue_id=message.queue_id,
        extra_info=message.handle.encode(), offset=message.queue_offset, invisible_time=invisible_ms,
    )  # fmt: skip
    header = msgspec.structs.replace(header, **changes)
    return await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)


def changed(message: Message, response: ReceivedResponse) -> PopHandle:
    """The new handle."""
    header = response.header(ChangeInvisibleTimeResponseHeader)
    return message.handle._replace(
        first_offset=message.queue_offset, pop_time_ms=header.pop_time, invisible_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
    )  # fmt: skip


async def peek(client: TestClient, queue_id: int = -1, most: int = 32) -> ReceivedResponse:
    """Look."""
    header = PeekMessageRequestHeader(topic=TOPIC, queue_id=queue_id, max_msg_nums=most, consumer_group=GROUP)
    return await client.ask(RequestCode.PEEK_MESSAGE, header)


def written(broker: Broker) -> list[Record]:
    """What pop has written, on its way through the wheel."""
    return [
        stored(broker, TIMER_TOPIC, 0, offset)
        for offset in range(broker.store.min_offset(TIMER_TOPIC, 0), broker.store.max_offset(TIMER_TOPIC, 0))
    ]
