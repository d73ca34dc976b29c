"""Runs one partition of a function: inputs in order, and each of them has one effect.

The steps, and what a crash after each of them leaves:

1. Handlers run, and gather changes and outputs in memory.  After a crash they run again.
2. One batch has all of that and the new positions.  It is stored if the changelog ends where this runner has read it
   to.  So of two that own the partition one goes on, and the other loads it again.  After a crash the next owner finds
   it.
3. The outputs are sent, with ids that brokers recognise.  After a crash the next owner sends all of them again.
4. The next commit, or an empty one when no input comes, says that they were sent.

So nothing depends on a lock, a clock, or on a handler that does the same twice.  See docs/decisions/053.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from sprocket.client import arguments
from sprocket.client.connection.backoff import Backoff
from sprocket.client.errors import TopicNotFound
from sprocket.client.message import Message, ReceivedMessage
from sprocket.common.clock import Clock
from sprocket.functions.context import Context, unscoped
from sprocket.functions.declaration import Function
from sprocket.functions.partition import Draft, Partition
from sprocket.functions.records import Content, Entry, Output, dead_letter_of, messages_of
from sprocket.functions.windows import MAX_TIME_MS

logger = logging.getLogger(__name__)

# Inputs of one commit.
_MAX_INPUTS = 256
# After this time without inputs a commit says that the outputs were sent.
_IDLE_S = 1.0
_MAX_PAUSE_S = 30.0
_MAX_REASON_CHARS = 300


class Fenced(Exception):
    """The changelog does not end where this runner has read it to: another one owns the partition, or did."""


class _Stopped(Exception):
    """`stop` was called between two tries: the input has no effect yet."""


@dataclass(frozen=True)
class Record:
    """One record of the changelog."""

    content: Content
    stored_ms: int


class Changelog(Protocol):
    """The changelog of a partition."""

    async def read(self, offset: int) -> tuple[list[Record], int, bool]:
        """Return records from `offset` on, the offset after them, and whether that is the end now."""
        ...

    async def append(self, batch: Sequence[Message], at_offset: int) -> None:
        """Store `batch`.  Raises Fenced if that is not known to have happened."""
        ...


class Inputs(Protocol):
    """The input queues of a partition."""

    async def start(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Read each topic from its position on; return where those begin that have none."""
        ...

    async def take(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        """Return up to `most` inputs, those of one topic in order; none after `wait_s`."""
        ...


class Outlets(Protocol):
    """Where a partition sends to."""

    async def placed(self, output: Output, unique_key: str) -> Output:
        """Return `output` with its queue and key.  Raises TopicNotFound, and as sends do while brokers are down."""
        ...

    async def send(self, outputs: Sequence[Output], committed_ms: int) -> None:
        """Send all, those of one queue in order; waits for brokers that are down."""
        ...


# What a process counts for each function; names are those of metrics.
COUNTERS = {
    "inputs": "Inputs that were handled.",
    "outputs": "Outputs and dead letters that were sent.",
    "commits": "Commits to the changelog.",
    "failures": "Tries of handlers that raised an error.",
    "dead_letters": "Inputs that became dead letters.",
    "late_inputs": "Inputs whose window was closed.",
    "reloads": "Partitions that were loaded again after an error.",
}


class Counts(dict[str, int]):
    """What the partitions of a function have done in this process, by the names of `COUNTERS`."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COUNTERS, 0))
        self.last_error = ""

    def failed(self, reason: str) -> str:
        """Note why something failed; return as much of the reason as is kept."""
        self.last_error = reason[:_MAX_REASON_CHARS]
        return self.last_error


class PartitionRunner:
    """One partition, from its load until `stop`."""

    def __init__(
        self, function: Function, place: str, changelog: Changelog, inputs: Inputs, outlets: Outlets, counts: Counts,
        clock: Clock,
    ) -> None:  # fmt: skip
        """`place` names the partition in ids of outputs: broker and queue."""
        self._function = function
        self._place = place
        self._changelog = changelog
        self._inputs = inputs
        self._outlets = outlets
        self._counts = counts
        self._clock = clock
        self._is_stopping = False
        self.partition = Partition()

    def stop(self) -> None:
        """End `run` after the input in work and its commit."""
        self._is_stopping = True

    async def run(self) -> None:
        """Load the partition, then handle inputs until `stop`.  Raises Fenced, and as the ports do."""
        partition = self.partition
        await self._load()
        await self._outlets.send(partition.unsent, partition.committed_ms)
        partition.begin(await self._inputs.start(partition.positions))
        await self._expire_due(self._ids(f"load/{partition.end}"))
        while not self._is_stopping:
            taken = await self._inputs.take(_MAX_INPUTS, _IDLE_S)
            try:
                for message in taken:
                    if not self._is_stopping:
                        await self._handle(message)
            except _Stopped:
                pass
            if partition.needs_commit or (partition.unsent and not taken):
                await self._commit()

    async def _load(self) -> None:
        offset, is_end = 0, False
        while not is_end:
            records, offset, is_end = await self._changelog.read(offset)
            for record in records:
                self.partition.load(record.content, record.stored_ms)
        self.partition.loaded(offset)

    async def _commit(self) -> None:
        partition = self.partition
        commit = partition.commit()
        batch = messages_of(self._function.changelog, commit)
        await self._changelog.append(batch, partition.end)
        partition.committed(commit, len(batch), self._clock.wall_ms())
        self._counts["commits"] += 1
        await self._outlets.send(partition.unsent, partition.committed_ms)
        self._counts["outputs"] += len(partition.unsent)

    def _ids(self, cause: str) -> Iterator[str]:
        """Return ids of outputs that no other cause has."""
        return (f"{self._function.group}/{self._place}/{cause}/{number}" for number in count(1))

    # Inputs

    async def _handle(self, message: ReceivedMessage) -> None:
        function, partition, topic = self._function, self.partition, message.topic
        time_ms = message.born_timestamp_ms
        ids = self._ids(f"{topic}/{message.queue_offset}")
        try:
            value = function.inputs[topic].decode(message.body)
            if function.time is not None:
                time_ms = arguments.whole("the event time", int(function.time(value)), -MAX_TIME_MS, MAX_TIME_MS)
        except Exception as error:
            time_ms = 0
            self._give_up(message, f"the input cannot be read: {error!r}"[:_MAX_REASON_CHARS], ids)
        else:
            window = None if function.window is None else function.window.at(time_ms)
            if window is not None and window.closes_at_ms <= partition.watermark_ms:
                self._counts["late_inputs"] += 1
            else:
                key = message.sharding_key or next(iter(message.keys), "")

                def context(draft: Draft) -> Context[Any]:
                    return Context(function, draft, topic, key, time_ms, partition.watermark_ms, window, message)

                reason = await self._tries(function.handler, (value,), context, ids)
                if reason is not None:
                    self._give_up(message, reason, ids)
        partition.advance(topic, message.queue_offset + 1, time_ms)
        self._counts["inputs"] += 1
        await self._expire_due(ids)
        if partition.is_full:
            await self._commit()

    async def _expire_due(self, ids: Iterator[str]) -> None:
        """Expire what is due.  A crash between two of its commits leaves the rest due."""
        for entry in self.partition.expired():
            await self._expire(entry, ids)
            if self.partition.is_full:
                await self._commit()

    async def _expire(self, entry: Entry, ids: Iterator[str]) -> None:
        function, partition = self._function, self.partition
        window, key = unscoped(function, entry.key)
        time_ms = partition.watermark_ms if entry.expires_ms is None else entry.expires_ms

        def context(draft: Draft) -> Context[Any]:
            return Context(function, draft, "", key, time_ms, partition.watermark_ms, window, None)

        if function.expiry is not None and function.state is not None:
            value = function.state.decode(entry.value)
            reason = await self._tries(function.expiry, (key, value), context, ids, expiring=entry)
            if reason is None:
                return
            logger.error("event=expiry_given_up group=%s key=%r reason=%r", function.group, key[:100], reason)
        draft = partition.draft()
        draft.delete(entry.key)
        partition.take(draft)

    async def _tries(
        self, handler: Any, given: tuple[Any, ...], context: Any, ids: Iterator[str], expiring: Entry | None = None
    ) -> str | None:
        """Call a handler until it returns; return None, or the reason after the last try."""
        function, retries = self._function, self._function.retries
        backoff = Backoff(retries.pause_s, max(retries.pause_s, _MAX_PAUSE_S))
        for attempt in range(retries.times + 1):
            draft = self.partition.draft()
            error = await self._try(handler, given, context(draft), draft, expiring)
            if error is None:
                try:
                    draft.outputs = [await self._outlets.placed(output, next(ids)) for output in draft.outputs]
                except TopicNotFound as missing:  # a name that the handler chose: `output` was there at the start
                    error = missing
            if error is None:
                self.partition.take(draft)
                return None
            self._counts["failures"] += 1
            reason = self._counts.failed(repr(error))
            logger.warning(
                "event=function_failed group=%s function=%s try=%d reason=%r", function.group, function.name,
                attempt + 1, reason, exc_info=error if attempt == retries.times else None,
            )  # fmt: skip
            if attempt == retries.times:
                return reason
            if self._is_stopping:
                raise _Stopped
            await backoff.pause()
        raise AssertionError("a try returns or raises")

    async def _try(
        self, handler: Any, given: tuple[Any, ...], ctx: Context[Any], draft: Draft, expiring: Entry | None
    ) -> BaseException | None:
        """Call a handler; return the error that it raises, None without one."""
        function = self._function
        try:
            async with asyncio.timeout(function.retries.timeout_s):
                result = await handler(*given, ctx)
            if result is not None:
                if function.output is None:
                    raise TypeError(f"{function.name} returned a value, but declares no output topic")
                ctx.send(function.output, result, key=ctx.key)
            if expiring is not None and draft.get(expiring.key) == expiring:
                draft.delete(expiring.key)
        except (Exception, SystemExit) as error:  # a handler cannot end the instance, which would get it again
            return error
        return None

    def _give_up(self, message: ReceivedMessage, reason: str, ids: Iterator[str]) -> None:
        draft = self.partition.draft()
        draft.send(dead_letter_of(self._function.group, message, reason, next(ids)))
        self.partition.take(draft)
        self._counts["dead_letters"] += 1
        logger.error(
            "event=function_dead_letter group=%s topic=%s queue=%s offset=%d reason=%r", self._function.group,
            message.topic, self._place, message.queue_offset, reason,
        )  # fmt: skip
