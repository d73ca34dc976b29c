"""Start offset of a consumer in a new queue.

Source: RocketMQ 5.3.3, `RebalancePushImpl.computePullFromWhere`.
"""

from datetime import datetime
from enum import Enum
from typing import NamedTuple

from sprocket.client import arguments
from sprocket.client.answers import header_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.rebalance.offset_store import OffsetStore
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from sprocket.remoting.message.topic_names import RETRY_PREFIX


class ConsumeFrom(Enum):
    """Start of a group without a committed offset.  A `datetime` starts at a time instead."""

    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    LAST = "CONSUME_FROM_LAST_OFFSET"


def checked_start(consume_from: ConsumeFrom | datetime) -> ConsumeFrom | datetime:
    """Return `consume_from` if it is valid; a datetime must have a time zone."""
    if isinstance(consume_from, datetime):
        arguments.moment_ms("consume_from", consume_from)
        return consume_from
    return arguments.choice("consume_from", consume_from, ConsumeFrom, "pass ConsumeFrom.FIRST, LAST or a datetime")


def consume_from_where(consume_from: ConsumeFrom | datetime) -> str:
    """Return its name in heartbeats."""
    return "CONSUME_FROM_TIMESTAMP" if isinstance(consume_from, datetime) else consume_from.value


class Start(NamedTuple):
    """Start of a queue.  `must_commit`: the group has no offset yet, and must not begin elsewhere the next time."""

    offset: int
    must_commit: bool


async def end_of(instance: ClientInstance, queue: MessageQueue) -> int:
    """Return the offset after the last message of `queue`.  Raises ClientError."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    response = await instance.invoke_for(queue, RequestCode.GET_MAX_OFFSET, header)
    instance.expect_success(response, instance.broker_name_of(queue))
    return header_of(response, GetMaxOffsetResponseHeader).offset


async def at_time(instance: ClientInstance, queue: MessageQueue, time_ms: int) -> int:
    """Return the offset of the first message of `queue` that was stored then or later.  Raises ClientError."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms, boundary_type="LOWER",
        broker_name=queue.broker_name,
    )  # fmt: skip
    response = await instance.invoke_for(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    instance.expect_success(response, instance.broker_name_of(queue))
    return header_of(response, SearchOffsetResponseHeader).offset


class StartOffset:
    """Start offsets for one group."""

    def __init__(self, instance: ClientInstance, store: OffsetStore, consume_from: ConsumeFrom | datetime) -> None:
        self._instance = instance
        self._store = store
        self._consume_from = consume_from

    async def of(self, queue: MessageQueue) -> Start:
        """Return the committed offset, else the one for `consume_from`.  Raises ClientError if neither is known."""
        committed = await self._store.read(queue)
        if committed is not None and committed >= 0:
            return Start(committed, must_commit=not committed)  # brokers answer 0 also for a group without an offset
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if isinstance(self._consume_from, datetime):
            offset = await (self.end_of(queue) if is_retry else self.at_time(queue, self._consume_from))
        elif self._consume_from is ConsumeFrom.LAST and not is_retry:
            offset = await self.end_of(queue)
        else:
            # The broker's response to the first pull corrects it if the queue begins later.
            return Start(0, must_commit=False)
        return Start(offset, must_commit=True)

    async def end_of(self, queue: MessageQueue) -> int:
        """Return the offset after the last message of `queue`.  Raises ClientError."""
        return await end_of(self._instance, queue)

    async def at_time(self, queue: MessageQueue, when: datetime) -> int:
        """Return the offset of the first message stored at `when` or later.  Raises ClientError."""
        return await at_time(self._instance, queue, round(when.timestamp() * 1000))
