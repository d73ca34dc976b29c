"""One queue of a source, read with long polling and ahead of the copier."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from replicate.queue_copier import Bounds
from sprocket.client.answers import header_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.consume.subscription import ALL
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.pull.pull import Puller, PullLoop, PullSettings
from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)

# Brokers keep no offsets of this group: it commits nothing.
GROUP: Final = "sprocket-replication"
_IDLE_S: Final = 2.0


class OffsetGone(ClientError):
    """The source has no message at the offset that was to be read."""


class _Reader(ProcessQueue):
    """Messages that were read and not copied."""

    __slots__ = ("_arrived", "read")

    def __init__(self, queue: MessageQueue, next_offset: int, arrived: Wakeup) -> None:
        super().__init__(queue, next_offset)
        self.read: deque[ReceivedMessage] = deque()
        self._arrived = arrived

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        self.read.extend(messages)
        self.count += len(messages)
        self.size_bytes += sum(message.size_bytes for message in messages)
        self.next_offset = next_offset
        self._arrived.set()


class QueueSource:
    """Queue of the cluster of `instance`; it holds at most about twice `ahead_bytes`."""

    def __init__(self, instance: ClientInstance, queue: MessageQueue, ahead_bytes: int) -> None:
        self._instance = instance
        self._queue = queue
        self._settings = PullSettings(
            pull_batch_size=1024, pull_batch_size_in_bytes=1024 * 1024, pull_threshold_for_queue=65_535,
            pull_threshold_size_for_queue_bytes=ahead_bytes,
        )  # fmt: skip
        self._subscription = SubscriptionData(queue.topic, ALL, sub_version=instance.clock.wall_ms())
        self._arrived = Wakeup()
        self._reader: _Reader | None = None
        self._loop: PullLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def bounds(self) -> Bounds:
        """Return its extent, from its master.  Raises ClientError."""
        return await bounds_of(self._instance, self._queue)

    def seek(self, offset: int) -> None:
        """Read from `offset` on, unless the next message that was read is that one."""
        reader = self._reader
        if reader is not None and not reader.is_dropped:
            next_offset = reader.read[0].queue_offset if reader.read else reader.next_offset
            if next_offset == offset:
                return
        self.close()
        self._reader = _Reader(self._queue, offset, self._arrived)
        puller = Puller(self._instance, GROUP, self._settings, self._queue, states_subscription=True)
        self._loop = PullLoop(
            puller, self._reader, lambda: self._subscription, lambda queue, messages: None, self._instance,
            commits_with_pull=False,
        )  # fmt: skip
        self._task = self._instance.spawn(self._read(self._reader, self._loop))

    async def _read(self, reader: _Reader, loop: PullLoop) -> None:
        await loop.run()
        # The offset is out of the queue: the copier asks for its bounds.
        reader.drop()
        self._arrived.set()

    async def messages(self) -> Sequence[ReceivedMessage]:
        """Return what was read, nothing after `_IDLE_S` without a message.

        Raises OffsetGone when the broker has not the offset any more.
        """
        reader = self._reader
        if reader is None or reader.read:
            return () if reader is None else reader.read
        if reader.is_dropped:
            raise OffsetGone(f"{self._queue.topic}: the source has no message at {reader.next_offset}")
        await self._arrived.wait(_IDLE_S)
        return reader.read

    def drop(self, count: int) -> None:
        """Forget the first messages."""
        reader, loop = self._reader, self._loop
        if reader is not None and loop is not None:
            for _ in range(count):
                reader.size_bytes -= reader.read.popleft().size_bytes
            reader.count -= count
            loop.room.set()

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None and self._task is not None:
            self._reader.drop()
            self._task.cancel()


async def bounds_of(instance: ClientInstance, queue: MessageQueue) -> Bounds:
    """Return the extent of a queue, from its master.  Raises ClientError."""
    await instance.route(queue.topic)
    name = instance.broker_name_of(queue)
    max_header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    min_header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    highest = await instance.invoke_master(name, RequestCode.GET_MAX_OFFSET, max_header)
    lowest = await instance.invoke_master(name, RequestCode.GET_MIN_OFFSET, min_header)
    end = header_of(instance.expect_success(highest, name), GetMaxOffsetResponseHeader).offset
    begin = header_of(instance.expect_success(lowest, name), GetMinOffsetResponseHeader).offset
    return Bounds(max(0, begin), end)
