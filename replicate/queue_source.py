"""One queue of a source, read with long polling and ahead of the copier."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

import msgspec

from replicate.ends import Bounds
from replicate.protocol.read_ahead import MAX_MESSAGES, AheadBudget, Range, ReadAhead
from sprocket.client.answers import header_of
from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.consume.subscription import ALL
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.pull.pull import Puller, PullSettings, PullStatus
from sprocket.common.errors import ClientError, SprocketError
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
# Pulls of a link that are under way at one broker, without those that wait for a message: it refuses what it cannot
# hold, and one that does not answer keeps none back from the others.
MAX_PULLS: Final = 1024
_IDLE_S: Final = 2.0
_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 3.0
_PULLS: Final = PullSettings(pull_batch_size=MAX_MESSAGES, pull_batch_size_in_bytes=1024 * 1024)


class OffsetGone(ClientError):
    """The source has no message at the offset that was to be read."""


class QueueSource:
    """Queue of the cluster of `instance`.  `budget` bounds what is held, `slots` the pulls at its broker."""

    def __init__(
        self, instance: ClientInstance, queue: MessageQueue, budget: AheadBudget, slots: asyncio.Semaphore
    ) -> None:
        self._instance = instance
        self._queue = queue
        self._slots = slots
        self._puller = Puller(instance, GROUP, _PULLS, queue, states_subscription=True)
        self._subscription = SubscriptionData(queue.topic, ALL, sub_version=instance.clock.wall_ms())
        self._budget = budget
        self._arrived = Wakeup()
        self._read = ReadAhead(0, budget)
        self._is_gone = True  # nothing is read from here on: the offset is out of the queue, or none was set
        self._pulls: set[asyncio.Task[None]] = set()

    async def bounds(self) -> Bounds:
        """Return its extent, from its master.  Raises ClientError."""
        return await bounds_of(self._instance, self._queue)

    @property
    def end(self) -> int:
        """End of the queue, as far as the last pull says."""
        return self._read.end

    def seek(self, offset: int) -> None:
        """Read from `offset` on; what was read already of that is kept."""
        ready = self._read.ready
        while not self._is_gone and ready and ready[0].queue_offset < offset:
            self._read.drop(1)
        if not self._is_gone and (ready[0].queue_offset if ready else self._read.next_offset) == offset:
            self._go_on()
            return
        self.close()
        self._read, self._is_gone = ReadAhead(offset, self._budget), False
        self._go_on()

    def _go_on(self) -> None:
        """Send the pulls that there is room for."""
        while not self._is_gone and (pull := self._read.next_pull()) is not None:
            task = self._instance.spawn(self._pull(self._read, pull))
            self._pulls.add(task)
            task.add_done_callback(self._pulls.discard)

    async def _pull(self, read: ReadAhead, pull: Range) -> None:
        """Pull one range until it is answered."""
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S)
        while True:
            try:
                async with self._slots if not pull.waits else nullcontext():
                    result = await self._puller.pull(
                        self._subscription, pull.offset, count=pull.length, waits=pull.waits
                    )  # fmt: skip
            except (SprocketError, msgspec.ValidationError) as error:
                self._puller.failed()
                self._puller.note_failure(error)
                await backoff.pause()
                continue
            self._puller.note_success()
            if result.status is PullStatus.OFFSET_ILLEGAL:
                self._is_gone = True  # the copier asks for its bounds
                self._arrived.set()
                return
            if not pull.waits and result.next_begin_offset <= pull.offset:
                # A slave redirects to the master, or has less than the master.
                self._puller.failed()
                await backoff.pause()
                continue
            if pull.waits and result.status is PullStatus.NO_MATCHED_MSG:
                await backoff.pause()
            read.take(pull, result.messages, result.next_begin_offset, result.max_offset)
            self._arrived.set()
            self._go_on()
            return

    async def messages(self) -> Sequence[ReceivedMessage]:
        """Return what was read, nothing after `_IDLE_S` without a message.

        Raises OffsetGone when the broker has not the offset any more.
        """
        read, clock = self._read, self._instance.clock
        ends_s = clock.monotonic() + _IDLE_S
        while not read.ready and (left_s := ends_s - clock.monotonic()) > 0:
            if self._is_gone:
                raise OffsetGone(f"{self._queue.topic}: there is no message at {read.next_offset}")
            await self._arrived.wait(left_s)  # also for a range that has another one before it
        return read.ready

    def drop(self, count: int) -> None:
        """Forget the first messages."""
        self._read.drop(count)
        self._go_on()

    def close(self) -> None:
        """Stop reading."""
        self._is_gone = True
        for task in self._pulls:
            task.cancel()
        self._read.close()
        self._read = ReadAhead(self._read.next_offset, self._budget)


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
