"""Places of copies that another replicator stored, or a request without an answer: read from the copies themselves.

Copies are read from the target's queue.  Where a link leads back, messages between them may be echoes, which the
source's queue has.  So the map of offsets is exact again before the queue is copied on.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice, takewhile
from typing import Final

from replicate.ends import Bounds, SourceEnd
from replicate.protocol.copies import SourceQueue, mark_of
from replicate.protocol.offset_map import NO_ECHOES
from replicate.protocol.position import Position, Stretch
from sprocket.client.message import ReceivedMessage

logger = logging.getLogger(__name__)

# What is read of a stretch; a longer one is known only as a whole.  A checkpoint is 5 s old, as a rule.
MAX_MESSAGES: Final = 1_000_000  # of both ends together
MAX_BYTES: Final = 512 * 1024 * 1024
# Looks at an end that brings nothing.
_MAX_IDLE: Final = 5
# Messages between two pauses, in which the loop serves others.
PAGE: Final = 256
PAUSE_S: Final = 0.001


class _NotRead(Exception):
    """An end is silent, or the stretch is too long."""


class PlaceReader:
    """Reader of the places of copies of `queue` in the queue `target`, and of echoes in `source`."""

    def __init__(
        self, queue: SourceQueue, target: SourceQueue, source: SourceEnd, copies: SourceEnd,
        pause: Callable[[float], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._queue = queue
        self._target = target
        self._source = source
        self._copies = copies
        self._pause = pause
        self._left, self._left_bytes = MAX_MESSAGES, MAX_BYTES

    async def read(self, stretch: Stretch, position: Position, source: Bounds) -> None:
        """Add the places of a stretch to the map of `position`: all, or the first of them if it has too much.

        Raises SprocketError if an end refuses.
        """
        self._left, self._left_bytes = MAX_MESSAGES, MAX_BYTES
        try:
            if stretch.end - stretch.begin > MAX_MESSAGES:  # groups stand near its end
                raise _NotRead("it is too long")
            await self._read(stretch, position, source)
        except _NotRead as reason:
            logger.warning(
                "event=places_not_read queue=%s from=%d to=%d reason=%r",
                self._queue, position.map.source_end, stretch.source_end, str(reason),
            )  # fmt: skip
        finally:
            self._copies.close()

    async def _read(self, stretch: Stretch, position: Position, source: Bounds) -> None:
        due = stretch.source
        async for copy in self._messages(self._copies, stretch.begin, stretch.end):
            mark = mark_of(self._queue, copy)
            if mark is None or mark.offset < due:
                continue  # of another queue, or doubled
            if due < mark.offset and position.map.echo_end != NO_ECHOES:
                begin, end = max(due, source.begin), min(mark.offset, source.end)
                async for message in self._messages(self._source, begin, end):
                    echo = mark_of(self._target, message)
                    if echo is not None:
                        position.place(message.queue_offset, echo.offset, is_echo=True)
            position.place(mark.offset, copy.queue_offset)
            due = mark.offset + 1

    async def _messages(self, end: SourceEnd, begin: int, limit: int) -> AsyncIterator[ReceivedMessage]:
        """Give the messages [begin, limit) of an end."""
        if begin >= limit:
            return
        end.seek(begin)
        idle = 0
        while begin < limit:
            ready = await end.messages()
            some = list(islice(takewhile(lambda message: message.queue_offset < limit, ready), PAGE))
            if ready and not some:
                return
            idle = 0 if some else idle + 1
            self._left -= len(some)
            self._left_bytes -= sum(message.size_bytes for message in some)
            if idle == _MAX_IDLE or min(self._left, self._left_bytes) < 0:
                raise _NotRead("an end brings no message" if idle else "it is too long")
            end.drop(len(some))
            await self._pause(PAUSE_S)
            for message in some:
                begin = message.queue_offset + 1
                yield message
