"""The changelog, the inputs and the outlets of a partition, on brokers."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.unique_id import derived_id
from sprocket.client.consume.message_back import DEAD_LETTER_REASON, MessageBack
from sprocket.client.consume.subscription import ALL
from sprocket.client.errors import ClientError, IllegalArgument
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.producer import Producer
from sprocket.client.pull.pull import Puller, PullResult, PullSettings, PullStatus
from sprocket.client.rebalance.start_offset import ConsumeFrom, at_time, end_of
from sprocket.client.send_result import SendStatus, queue_name
from sprocket.common.errors import SprocketError
from sprocket.functions.records import Output, message_of, read_record
from sprocket.functions.runner import Fenced, Record
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.codec.java_hash import java_hash_index
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, KEYS

logger = logging.getLogger(__name__)

LOADS: Final = PullSettings(pull_batch_size=1024, pull_batch_size_in_bytes=4 << 20, suspend_timeout_s=1.0)
INPUTS: Final = PullSettings(pull_batch_size=256, pull_batch_size_in_bytes=256 << 10)
# Pulled lists of each input topic that wait for the runner: brokers send 32 messages at once.
_PULLED_LISTS: Final = 8
_BATCH_BYTES: Final = 1 << 20
_PROPERTIES_BYTES: Final = 512
# Brokers know ids for 10 minutes (idempotenceWindowMs), or less if there are many; clocks may differ by this, too.
SAFE_WINDOW_MS: Final = 300_000


class QueueReader:
    """Reader of one queue, at any offset."""

    def __init__(self, instance: ClientInstance, group: str, queue: MessageQueue, settings: PullSettings) -> None:
        self.queue = queue
        self._instance = instance
        self._group = group
        self._subscription = SubscriptionData(queue.topic, ALL, sub_version=instance.clock.wall_ms())
        self._puller = Puller(instance, group, settings, queue, states_subscription=True)

    async def end(self) -> int:
        """Return the offset after the last message.  Raises ClientError."""
        return await end_of(self._instance, self.queue)

    async def at_time(self, time_ms: int) -> int:
        """Return the offset of the first message that was stored then or later.  Raises ClientError."""
        return await at_time(self._instance, self.queue, time_ms)

    async def pull(self, offset: int, *, count: int = 0, waits: bool = True) -> PullResult:
        """Return up to `count` messages (0: as many as usual) from `offset` on; it waits for the first one.

        Raises ClientError.
        """
        try:
            return await self._puller.pull(self._subscription, offset, count=count, waits=waits)
        except SprocketError:
            self._puller.failed()
            self._instance.request_refresh(self.queue.topic)
            raise


class QueueChangelog:
    """A `Changelog` in one queue of a compacted topic."""

    def __init__(self, reader: QueueReader, producer: Producer) -> None:
        self._reader = reader
        self._producer = producer
        self._end: int | None = None

    async def read(self, offset: int) -> tuple[list[Record], int, bool]:
        """Raises ClientError, and ProtocolError for a record that is none of this version."""
        if self._end is None:
            self._end = await self._reader.end()
        if offset >= self._end:
            return [], offset, True
        result = await self._reader.pull(offset)
        if result.status is PullStatus.OFFSET_ILLEGAL and result.next_begin_offset <= offset:
            raise ClientError(f"{queue_name(self._reader.queue)} has lost its end; it is read again")
        records = [
            Record(read_record(one.properties.get(KEYS, ""), one.body), one.store_timestamp_ms)
            for one in result.messages
        ]
        offset = max(offset, result.next_begin_offset)
        return records, offset, offset >= self._end

    async def append(self, batch: Sequence[Message], at_offset: int) -> None:
        queue = self._reader.queue
        try:
            result = await self._producer.send_batch(batch, queue=queue, at_offset=at_offset)
        except IllegalArgument:
            raise
        except ClientError as error:
            # A lost answer, or another owner: the changelog says which.
            raise Fenced(
                f"the commit at {at_offset} of {queue_name(queue)} is not known to be stored: {error}"
            ) from error
        if result.status is not SendStatus.SEND_OK or result.queue_offset != at_offset:
            raise Fenced(f"the commit at {at_offset} of {queue_name(queue)} got {result!r}")


class QueueInputs:
    """The `Inputs` of one partition: a task for each topic pulls ahead."""

    def __init__(self, readers: Mapping[str, QueueReader], consume_from: ConsumeFrom) -> None:
        self._readers = readers
        self._consume_from = consume_from
        self._pulled: asyncio.Queue[list[ReceivedMessage]] = asyncio.Queue(_PULLED_LISTS * len(readers))
        self._rest: list[ReceivedMessage] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Raises ClientError."""
        begins = {}
        for topic, reader in self._readers.items():
            if topic not in positions:
                begins[topic] = await reader.end() if self._consume_from is ConsumeFrom.LAST else 0
        for topic, reader in self._readers.items():
            offset = positions[topic] if topic in positions else begins[topic]
            self._tasks.append(asyncio.create_task(self._pull(reader, offset)))
        return begins

    async def take(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        if not self._rest:
            try:
                self._rest = await asyncio.wait_for(self._pulled.get(), wait_s)
            except TimeoutError:
                return []
        while len(self._rest) < most and not self._pulled.empty():
            self._rest += self._pulled.get_nowait()
        taken, self._rest = self._rest[:most], self._rest[most:]
        return taken

    async def close(self) -> None:
        """Pull no longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pull(self, reader: QueueReader, offset: int) -> None:
        backoff = Backoff(0.1, 3.0)
        name = queue_name(reader.queue)
        while True:
            try:
                result = await reader.pull(offset)
            except SprocketError as error:
                logger.warning("event=input_not_pulled queue=%s reason=%r", name, str(error))
                await backoff.pause()
                continue
            if result.messages:
                backoff.reset()
            if result.status is PullStatus.OFFSET_ILLEGAL and result.next_begin_offset != offset:
                # A group that begins finds the oldest message this way, too.
                logger.warning("event=input_moved queue=%s from=%d to=%d", name, offset, result.next_begin_offset)
            elif result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset == offset:
                await backoff.pause()  # a broker redirects to another one
            if result.messages:
                await self._pulled.put(result.messages)
            offset = result.next_begin_offset


class BrokerOutlets:
    """The `Outlets` of all partitions of a function.  `producer` is idempotent."""

    def __init__(
        self, producer: Producer, back: MessageBack, new_reader: Callable[[MessageQueue], QueueReader],
        now_ms: Callable[[], int], waits: Callable[[str], object],
    ) -> None:  # fmt: skip
        """`new_reader` reads output queues: commits may be older than the window in which brokers know ids.

        `waits` gets the reason why committed outputs are not sent yet.
        """
        self._producer = producer
        self._back = back
        self._new_reader = new_reader
        self._now_ms = now_ms
        self._waits = waits
        self._turn = 0

    async def placed(self, output: Output, unique_key: str) -> Output:
        """Raises TopicNotFound, TopicNotWritable, NameServerUnreachable."""
        queues = await self._producer.queues(output.topic)
        self._turn += 1
        # As `by_sharding_key`: the queue that a producer would choose.
        index = java_hash_index(output.key, len(queues)) if output.key else self._turn % len(queues)
        queue = queues[index]
        return replace(output, unique_key=unique_key, broker_name=queue.broker_name, queue_id=queue.queue_id)

    async def send(self, outputs: Sequence[Output], committed_ms: int) -> None:
        """Raises IllegalMessage."""
        by_queue: dict[MessageQueue, list[Output]] = {}
        for output in outputs:
            by_queue.setdefault(MessageQueue(output.topic, output.broker_name, output.queue_id), []).append(output)
        async with asyncio.TaskGroup() as group:
            for queue, own in by_queue.items():
                group.create_task(self._send_to(queue, own, committed_ms))

    async def _send_to(self, queue: MessageQueue, outputs: list[Output], committed_ms: int) -> None:
        """Send until the broker has all: what is committed must arrive."""
        backoff = Backoff(0.1, 3.0)
        while outputs:
            try:
                if self._now_ms() - committed_ms > SAFE_WINDOW_MS:
                    known = await self._stored_ids(queue, committed_ms - SAFE_WINDOW_MS)
                    outputs = [one for one in outputs if derived_id(one.topic, one.unique_key) not in known]
                sent = await self._send_some(queue, outputs) if outputs else 0
            except IllegalArgument:
                raise
            except ClientError as error:
                name = queue_name(queue)
                logger.warning("event=output_not_sent queue=%s count=%d reason=%r", name, len(outputs), str(error))
                self._waits(f"{len(outputs)} outputs wait for {name}: {error}")
                await backoff.pause()
            else:
                outputs = outputs[sent:]

    async def _stored_ids(self, queue: MessageQueue, since_ms: int) -> set[str]:
        """Return the ids of all messages that the queue got since then: the broker may have forgotten them.

        Raises ClientError.
        """
        reader = self._new_reader(queue)
        found: set[str] = set()
        offset, end = await reader.at_time(since_ms), await reader.end()
        while offset < end:
            result = await reader.pull(offset)
            found.update(message.properties.get(IDEMPOTENCE_ID, "") for message in result.messages)
            if result.next_begin_offset <= offset:
                raise ClientError(f"{queue_name(queue)} cannot be read at {offset} to find what was sent before")
            offset = result.next_begin_offset
        return found

    async def _send_some(self, queue: MessageQueue, outputs: Sequence[Output]) -> int:
        """Send the next request; return the number of outputs in it.  Raises ClientError."""
        first, batch = outputs[0], _batch_of(outputs)
        if first.copied is None:
            result = await self._producer.send_batch(batch, queue=queue)
        else:
            topic, queue_id, offset = first.copied
            reader = self._new_reader(MessageQueue(topic, queue.broker_name, queue_id))
            found = await reader.pull(offset, count=1, waits=False)
            if not found.messages and found.status is not PullStatus.OFFSET_ILLEGAL:
                raise ClientError(f"the input of a dead letter was not read: {topic} queue {queue_id} offset {offset}")
            if not found.messages or found.messages[0].queue_offset != offset:
                logger.error("event=dead_letter_lost topic=%s queue=%d offset=%d", topic, queue_id, offset)
                return 1
            reason = first.properties[DEAD_LETTER_REASON]
            result = await self._back.send_dead_letter_once(found.messages[0], reason, queue, first.unique_key)
        if result.status is not SendStatus.SEND_OK:
            raise ClientError(result.status.name)
        return max(1, len(batch))


def _batch_of(outputs: Sequence[Output]) -> list[Message]:
    """Return the messages of the next request; none before a dead letter, which is a request of its own."""
    batch: list[Message] = []
    size_bytes = 0
    for output in outputs:
        size_bytes += len(output.body) + _PROPERTIES_BYTES
        if output.copied is not None or (batch and size_bytes > _BATCH_BYTES):
            break
        batch.append(message_of(output))
    return batch
