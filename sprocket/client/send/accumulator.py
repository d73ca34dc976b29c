"""Auto-batch: messages that are sent at about the same time travel as one request.

Source: RocketMQ 5.3.3, `ProduceAccumulator`, `DefaultMQProducer.canBatch`.
Different here: a batch is sent when it is full or its oldest message has waited `batch_max_delay_ms`, by one timer per
batch instead of a polling thread.  A batch of one is sent as a plain message.  If messages cannot form a batch, because
of their size or one invalid message, they are sent one by one, so that each has its own outcome.
So are messages whose keys chose one queue, if their topic has grown meanwhile: each key chooses anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sprocket.client import arguments
from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message, MessageQueue
from sprocket.client.send.reply import Reply
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import SendResult
from sprocket.remoting.message.topic_names import RETRY_PREFIX

BatchKey = tuple[str, bool, str]


class Sharding(NamedTuple):
    """A sharding key, and from how many queues it chose that of its message."""

    key: str
    queues: int


_Key = tuple[BatchKey, MessageQueue | None, int | None]  # with the number of queues that all keys chose from

SendOne = Callable[[Message, MessageQueue | None, str | None], Awaitable[SendResult]]
SendBatch = Callable[[Sequence[Message], MessageQueue | None, Sharding | None], Awaitable[SendResult]]


def goes_alone(message: Message) -> bool:
    """Return whether `message` cannot travel in a batch."""
    is_alone = message.is_delayed or message.priority is not None or message.lite_topic != ""
    return is_alone or isinstance(message, Reply) or message.topic.startswith(RETRY_PREFIX)


def batch_key(message: Message) -> BatchKey:
    """Return what all messages of a batch have in common: topic, `wait_store_ok` and tags."""
    return message.topic, message.wait_store_ok, message.tags


class _Batch:
    __slots__ = ("body_bytes", "futures", "messages", "shardings", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.messages: list[Message] = []
        self.shardings: list[Sharding | None] = []
        self.futures: list[asyncio.Future[SendResult]] = []
        self.body_bytes = 0


class Accumulator:
    """Accumulator of messages by topic, queue, `wait_store_ok` and tags; `send_batch` sends each batch."""

    def __init__(self, settings: SendSettings, send_one: SendOne, send_batch: SendBatch) -> None:
        self._delay_s = settings.batch_max_delay_ms / 1000
        self._batch_max_bytes = settings.batch_max_bytes
        self._total_max_bytes = settings.total_batch_max_bytes
        self._send_one = send_one
        self._send_batch = send_batch
        self._batches: dict[_Key, _Batch] = {}
        self._held_bytes = 0
        self._sending: set[asyncio.Task[None]] = set()

    def takes(self, message: Message) -> bool:
        """Return whether `message` may wait for others: not when it is delayed, large, or too much waits already."""
        arguments.body(message.body)  # it may have been set since the message was made
        return (
            len(message.body) <= self._batch_max_bytes
            and self._held_bytes + len(message.body) <= self._total_max_bytes
            and not goes_alone(message)
        )

    def add(
        self, message: Message, queue: MessageQueue | None, sharding: Sharding | None = None
    ) -> "asyncio.Future[SendResult]":
        """Add `message`, whose queue `sharding` chose if there is one.  Return a future of its outcome."""
        loop = asyncio.get_running_loop()
        key = (batch_key(message), queue, sharding and sharding.queues)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = _Batch(loop.call_later(self._delay_s, self._flush, key))
        future: asyncio.Future[SendResult] = loop.create_future()
        batch.messages.append(message)
        batch.shardings.append(sharding)
        batch.futures.append(future)
        batch.body_bytes += len(message.body)
        self._held_bytes += len(message.body)
        if batch.body_bytes >= self._batch_max_bytes:
            self._flush(key)
        return future

    def _flush(self, key: _Key) -> None:
        batch = self._batches.pop(key)
        batch.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._send(batch, key[1]))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, batch: _Batch, queue: MessageQueue | None) -> None:
        try:
            if len(batch.messages) > 1:
                try:
                    sent = await self._send_batch(batch.messages, queue, batch.shardings[0])
                except IllegalMessage:
                    await self._send_each(batch, queue)
                else:
                    for future, result in zip(batch.futures, split_result(sent, len(batch.messages)), strict=True):
                        _resolve(future, result)
            else:
                await self._send_each(batch, queue)
        except asyncio.CancelledError:
            for future in batch.futures:
                future.cancel()
            raise
        except Exception as error:
            for future in batch.futures:
                _resolve(future, error)
        finally:
            self._held_bytes -= batch.body_bytes

    async def _send_each(self, batch: _Batch, queue: MessageQueue | None) -> None:
        for message, sharding, future in zip(batch.messages, batch.shardings, batch.futures, strict=True):
            sent = self._send_one(message, None if sharding else queue, sharding and sharding.key)
            try:
                _resolve(future, await sent)
            except Exception as error:
                _resolve(future, error)

    async def close(self) -> None:
        """Send all waiting messages, and wait for their outcome."""
        for key in list(self._batches):
            self._flush(key)
        await asyncio.gather(*self._sending)


def _resolve(future: "asyncio.Future[SendResult]", outcome: SendResult | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def split_result(sent: SendResult, count: int) -> list[SendResult]:
    """Return the result of each of `count` messages that were sent as one batch."""
    ids = sent.message_id.split(",")
    offset_ids = sent.offset_message_id.split(",")
    if len(offset_ids) != count:
        # The queue stores a batch as one record.
        offset_ids = [sent.offset_message_id] * count
    return [
        SendResult(sent.status, ids[i], offset_ids[i], sent.queue, sent.queue_offset + i, sent.transaction_id)
        for i in range(count)
    ]
