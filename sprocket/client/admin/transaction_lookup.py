"""Lookup of a cluster's open transactions: half messages without an op message or a newer copy.

It reads both queues of every broker from the offsets that its transaction service committed, so it also works for
RocketMQ's brokers.
Source: RocketMQ 5.3.3, `TransactionalMessageServiceImpl`, `TransactionalMessageBridge.fetchConsumeOffset`.
"""

import msgspec

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.message import ReceivedMessage
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.topic_names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC


class OpenTransaction(msgspec.Struct, rename="camel", kw_only=True):
    """One half message that is neither committed nor rolled back; `queue_offset` is in the half topic, times are ms."""

    broker: str
    topic: str
    queue_id: int
    group: str
    message_id: str
    queue_offset: int
    check_times: int
    born_timestamp: int
    offset_message_id: str


async def open_transactions(admin: AdminClient) -> list[OpenTransaction]:
    """Return the open transactions of every broker, by broker and age.  Raises AdminError."""
    lookup = MessageLookup(admin)
    found: list[OpenTransaction] = []
    for queue, address in await lookup.queues(TRANS_HALF_TOPIC):
        op_queue = MessageQueue(TRANS_OP_HALF_TOPIC, queue.broker_name, queue.queue_id)
        # The op messages last, so that transactions that end during the read are left out.
        halves = await _unread(admin, lookup, queue, address)
        done = {
            int(offset)
            for message in await _unread(admin, lookup, op_queue, address)
            for offset in java_text(message.body).split(",")
            if offset.isdigit()
        }
        newest: dict[tuple[object, ...], ReceivedMessage] = {}
        for half in halves:
            identity = (half.message_id, half.born_timestamp_ms, half.born_host)
            newest[identity] = half
        found += [_described(half) for half in newest.values() if half.queue_offset not in done]
    return found


async def _unread(
    admin: AdminClient, lookup: MessageLookup, queue: MessageQueue, address: str
) -> list[ReceivedMessage]:
    """Return the messages after the offset that the broker's transaction service has committed."""
    low, high = await lookup.bounds(queue, address)
    committed = await GroupAdmin(admin).committed(address, TRANS_GROUP, queue.topic, queue.queue_id)
    start = max(low, committed or 0)
    return [message async for page in lookup.pages(queue, address, start, high) for message in page]


def _described(half: ReceivedMessage) -> OpenTransaction:
    properties = half.properties
    queue_id, checks = properties.get(names.REAL_QUEUE_ID, ""), properties.get(names.TRANSACTION_CHECK_TIMES, "")
    return OpenTransaction(
        broker=half.queue.broker_name,
        topic=properties.get(names.REAL_TOPIC, ""),
        queue_id=int(queue_id) if queue_id.isdigit() else -1,
        group=properties.get(names.PRODUCER_GROUP, ""),
        message_id=half.message_id,
        queue_offset=half.queue_offset,
        check_times=int(checks) if checks.isdigit() else 0,
        born_timestamp=half.born_timestamp_ms,
        offset_message_id=half.offset_message_id,
    )
