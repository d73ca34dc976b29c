"""The messages of a stream as batches, in order: a request and a task for each batch, none for each message.

A batch holds neighbours that have one topic, one tag and the same `wait_store_ok`, as those of `Accumulator`.  It is
sent when it is full, when the next message cannot join it, when the oldest result is asked for, or when its first
message has waited `batch_max_delay_ms`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sprocket.client import arguments
from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message
from sprocket.client.send.accumulator import BatchKey, batch_key, goes_alone, split_result
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import SendResult

# The window is shared by so many batches, so that some travel while the next one fills.
_BATCHES_PER_WINDOW: Final = 4

_Outcome = SendResult | Exception
SendOne = Callable[[Message], Awaitable[SendResult]]
SendBatch = Callable[[Sequence[Message]], Awaitable[SendResult]]


class BatchedStream:
    """Sender of one stream.  `is_full` says whether `window` messages are outstanding."""

    def __init__(self, settings: SendSettings, window: int, send_one: SendOne, send_batch: SendBatch) -> None:
        self._delay_s = settings.batch_max_delay_ms / 1000
        self._max_bytes = settings.batch_max_bytes
        self._max_messages = max(1, window // _BATCHES_PER_WINDOW)
        self._window = window
        self._send_one = send_one
        self._send_batch = send_batch
        self._filling: list[Message] = []
        self._filling_key: BatchKey | None = None
        self._filling_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sent: deque[tuple[int, asyncio.Task[list[_Outcome]]]] = deque()
        self._outstanding = 0

    @property
    def is_full(self) -> bool:
        """Whether as many messages are outstanding as may be."""
        return self._outstanding >= self._window

    @property
    def has_outcome(self) -> bool:
        """Whether the outcome of the oldest batch is known."""
        return bool(self._sent) and self._sent[0][1].done()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is outstanding."""
        return not self._outstanding

    def add(self, message: Message) -> None:
        """Take the next message.  Raises IllegalMessage if its topic or body is invalid."""
        arguments.check_topic(message.topic)
        size_bytes, key, is_alone = len(arguments.body(message.body)), batch_key(message), goes_alone(message)
        if self._filling and (
            is_alone or key != self._filling_key or self._filling_bytes + size_bytes > self._max_bytes
        ):
            self._flush()
        self._filling.append(message)
        self._filling_key = key
        self._filling_bytes += size_bytes
        self._outstanding += 1
        if is_alone or len(self._filling) >= self._max_messages or self._filling_bytes >= self._max_bytes:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._flush)

    async def oldest(self) -> list[_Outcome]:
        """Wait for the oldest batch.  Return the results of its messages; an exception ends them."""
        if not self._sent:
            self._flush()
        count, task = self._sent[0]
        outcomes = await task
        self._sent.popleft()
        self._outstanding -= count
        return outcomes

    def abandon(self) -> None:
        """Stop.  Messages that are outstanding may or may not arrive; those of a batch that was filling do not."""
        if self._timer is not None:
            self._timer.cancel()
        for _, task in self._sent:
            task.cancel()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._filling, self._filling_bytes = self._filling, [], 0
        self._sent.append((len(batch), asyncio.get_running_loop().create_task(self._send(batch))))

    async def _send(self, batch: list[Message]) -> list[_Outcome]:
        if len(batch) > 1:
            try:
                sent = await self._send_batch(batch)
            except IllegalMessage:
                pass  # one of them is invalid, or they are too large together: each has an outcome of its own
            except Exception as error:
                return [error]
            else:
                return [*split_result(sent, len(batch))]
        outcomes: list[_Outcome] = []
        for message in batch:
            try:
                outcomes.append(await self._send_one(message))
            except Exception as error:
                outcomes.append(error)
                break
        return outcomes
