"""``df.write.format("rocketmq")`` and the streaming writer: every task sends its rows through the asyncio client.

Delivery is at least once: a repeated task sends its rows again, and so does a retry after a lost response.  If a batch
of rows has a row that no broker would accept, nothing of the batch is sent.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.options.sink_options import SinkOptions
from spark.write.outgoing import Outgoing, check_columns, outgoing
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.errors import BrokerRefused, ClientClosed, ClientError, IllegalMessage
from sprocket.client.message import Message, MessageQueue
from sprocket.client.producer import Producer
from sprocket.client.send.accumulator import goes_alone
from sprocket.client.send.queue_choice import by_sharding_key
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.common.errors import SprocketError

logger = logging.getLogger(__name__)

_MAX_BATCH_MESSAGES: Final = 1000
_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 2.0

Pause = Callable[[float], Awaitable[None]]
T = TypeVar("T")


class WriteFailed(SprocketError):
    """A task could not send a row; the text has the first cause and the number of messages sent before."""


@dataclass
class Sent(WriterCommitMessage):
    """Totals of a task.  `weak` messages were not flushed or replicated in time by their broker."""

    messages: int = 0
    size_bytes: int = 0  # of bodies
    retried: int = 0  # repeated requests, including those for routes
    weak: int = 0

    def add(self, other: "Sent") -> None:
        """Add the totals of another task."""
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.retried += other.retried
        self.weak += other.weak

    def __str__(self) -> str:
        return f"sent={self.messages} bytes={self.size_bytes} retried={self.retried} weak={self.weak}"


class SinkTask:
    """Sender of the rows of one task, with up to `maxOutstanding` parallel requests.

    Rows with a sharding key go to the queue of that key with one request at a time, so they keep their order.  Other
    rows are sent in batches of up to `batchMaxBytes`, except delayed ones, which are sent one by one.
    """

    def __init__(self, producer: Producer, options: SinkOptions, pause: Pause) -> None:
        self.sent = Sent()
        self._producer = producer
        self._options = options
        self._pause = pause
        self._routes: dict[str, TopicRoute] = {}

    async def send(self, rows: Sequence[Outgoing]) -> None:
        """Send `rows` and wait for every response.  Raises WriteFailed with the first cause."""
        chains = await self._chains(rows)
        room = asyncio.Semaphore(self._options.max_outstanding)
        tasks = [asyncio.ensure_future(self._send_chain(chain, queue, room)) for chain, queue in chains]
        try:
            await asyncio.gather(*tasks)
        except ClientError as error:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise WriteFailed(
                f"{error}; {self.sent} by this task before that; requests in flight may have arrived, too"
            ) from error

    async def _chains(self, rows: Sequence[Outgoing]) -> list[tuple[list[list[Message]], MessageQueue | None]]:
        """Return chains of requests; those of a chain are sent one after the other."""
        ordered: dict[MessageQueue, list[Message]] = {}
        others: dict[str, list[Message]] = {}
        for row in rows:
            if row.sharding_key is None:
                others.setdefault(row.message.topic, []).append(row.message)
            else:
                queue = by_sharding_key(await self._route(row.message.topic), row.sharding_key)
                ordered.setdefault(queue, []).append(row.message)
        chains: list[tuple[list[list[Message]], MessageQueue | None]] = [
            (list(self._batches(messages)), queue) for queue, messages in ordered.items()
        ]
        for messages in others.values():
            chains += [([batch], None) for batch in self._batches(messages)]
        return chains

    def _batches(self, messages: Iterable[Message]) -> Iterator[list[Message]]:
        """Yield runs of `messages` for one request each, in order."""
        batch: list[Message] = []
        size = 0
        limit = min(self._options.batch_max_bytes, self._options.max_message_size // 2)
        for message in messages:
            cost = len(message.body) + 2 * _properties_size(message) + 256
            alone = goes_alone(message) or cost > limit
            if batch and (alone or size + cost > limit or len(batch) >= _MAX_BATCH_MESSAGES):
                yield batch
                batch, size = [], 0
            if alone:
                yield [message]
            else:
                batch.append(message)
                size += cost
        if batch:
            yield batch

    async def _send_chain(
        self, batches: Sequence[list[Message]], queue: MessageQueue | None, room: asyncio.Semaphore
    ) -> None:
        for batch in batches:
            async with room:
                result = await self._send_with_retries(batch, queue)
            self.sent.messages += len(batch)
            self.sent.size_bytes += sum(len(message.body) for message in batch)
            self.sent.weak += len(batch) if result.status is not SendStatus.SEND_OK else 0

    async def _send_with_retries(self, batch: list[Message], queue: MessageQueue | None) -> SendResult:
        """Send `batch`; the producer avoids brokers that have failed."""

        async def once() -> SendResult:
            if len(batch) == 1:
                return await self._producer.send(batch[0], queue=queue)
            return await self._producer.send_batch(batch, queue=queue)

        return await self._with_retries(once, batch[0].topic)

    async def _with_retries(self, once: Callable[[], Awaitable[T]], topic: str) -> T:
        """Return the result of `once`, with retries after temporary errors."""
        backoff_s = _BACKOFF_FIRST_S
        for left in range(self._options.retries, -1, -1):
            try:
                return await once()
            except (IllegalMessage, BrokerRefused, ClientClosed):
                raise
            except ClientError as error:
                if not left:
                    raise
                logger.info("event=send_retry topic=%s reason=%r", topic, str(error))
            self.sent.retried += 1
            await self._pause(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
        raise AssertionError("the last attempt returns or raises")

    async def _route(self, topic: str) -> TopicRoute:
        """Return the queues of `topic`, fixed for the task: a changed route would split rows of one key."""
        if topic not in self._routes:
            try:
                queues = await self._with_retries(lambda: self._producer.queues(topic), topic)
                self._routes[topic] = TopicRoute(topic, tuple(queues), ())
            except ClientError as error:
                raise WriteFailed(f"{error}; {self.sent} by this task before that") from error
        return self._routes[topic]


async def send_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Sent:
    """Send all rows of a task.  Raises WriteFailed, UnsendableRow.

    The next rows are fetched only after the previous ones have arrived: so no request can time out while Spark
    computes.
    """
    row = 0
    async with Producer(options.group, settings=options.sending(), client=options.client()) as producer:
        task = SinkTask(producer, options, asyncio.sleep)
        for batch in batches:
            await task.send(outgoing(batch, options, row))
            row += batch.num_rows
    return task.sent


class _TaskWriter:
    """Writer of the rows of a task.

    Raises ConfigError for columns that cannot be written, SprocketError for other modes than append.
    """

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool = False) -> None:
        if overwrite:
            raise SprocketError("mode overwrite: a topic is append-only; write with mode('append')")
        check_columns(to_arrow_schema(schema), options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return asyncio.run(send_rows(iterator, self._options))


class MessageWriter(_TaskWriter, DataSourceArrowWriter):
    """Writer of a batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _report("done", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _report("failed", messages)


class MessageStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """Writer of a stream; a micro-batch that Spark repeats is sent again."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        _report(f"done batch={batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        _report(f"failed batch={batchId}", messages)


def total(messages: Iterable[WriterCommitMessage | None]) -> Sent:
    """Return the totals of all tasks."""
    sent = Sent()
    for message in messages:
        if isinstance(message, Sent):
            sent.add(message)
    return sent


def _report(state: str, messages: list[WriterCommitMessage | None]) -> None:
    """Log the totals of the tasks that ended, and print them: Spark's driver runs this in a process without logging."""
    ended = sum(message is not None for message in messages)
    figures = f"state={state} {total(messages)} tasks={ended}"
    logger.info("event=rocketmq_write %s", figures)
    print(f"event=rocketmq_write {figures}", file=sys.stderr, flush=True)


def _properties_size(message: Message) -> int:
    own = sum(len(name) + len(value) + 2 for name, value in (message.properties or {}).items())
    return own + len(message.tags) + len(message.keys)
