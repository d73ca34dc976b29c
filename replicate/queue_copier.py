"""Copier of one queue: one request is outstanding at a time, so the order is kept, and the next one gathers meanwhile.

It knows its ends by protocols alone; clock and pauses are injected.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Final

from replicate.ends import Bounds, CopyRefused, Placed, SourceEnd, TargetEnd
from replicate.places import MAX_MESSAGES, PAGE, PAUSE_S, PlaceReader
from replicate.protocol.copies import Copy, Portion, SourceQueue, origin_of, portion, stream_of
from replicate.protocol.position import Checkpoint, Position, late_s
from sprocket.client.message import ReceivedMessage
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError, SprocketError
from sprocket.common.limits import MAX_BATCH_MESSAGES

logger = logging.getLogger(__name__)

_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0
_BLOCKED_S: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class CopyRules:
    """How a queue is copied.  `admit` waits until the link may send so many bytes."""

    target: str
    forwards: bool
    batch_bytes: int
    compresses: bool
    skips_refused: bool
    admit: Callable[[int], Awaitable[None]]
    pause: Callable[[float], Awaitable[None]]
    # Whether this replicator may copy now: it has the lease, and the pair is in the right phase.
    is_open: Callable[[], bool]
    refused: Callable[[SourceQueue, Copy, str], Awaitable[None]]
    # The newest checkpoint that the target has, and where that of a new epoch is written.
    known: Callable[[SourceQueue], Checkpoint | None]
    keep: Callable[[SourceQueue, Checkpoint], Awaitable[None]]
    # Whether more than two clusters are copied to each other.
    keeps_origins: bool


class QueueCopier:
    """Copier of `queue` from one end to the other, until it is cancelled."""

    def __init__(
        self, queue: SourceQueue, source: SourceEnd, target: TargetEnd, copies: SourceEnd, checkpoint: Checkpoint,
        rules: CopyRules, clock: Clock,
    ) -> None:  # fmt: skip
        """`copies` reads the target's queue."""
        self.queue = queue
        self.position = Position(checkpoint, keeps_origins=rules.keeps_origins)
        self.copied = self.copied_bytes = self.left_out = 0
        self.source_bounds = Bounds(0, checkpoint.source_end)
        self._first = checkpoint
        self._kept_epoch = checkpoint.epoch
        self._source = source
        self._target = target
        place = checkpoint.target_broker, checkpoint.target_queue_id
        self._target_queue = SourceQueue(rules.target, queue.topic, *place)
        self._places = PlaceReader(queue, self._target_queue, source, copies, rules.pause)
        self._rules = rules
        self._clock = clock
        self._missed, self._refused, self._copied_ms = checkpoint.missed, checkpoint.refused, checkpoint.copied_ms
        self._single_until = -1  # messages before this offset go one by one: one of them was refused
        self._has_more = False  # the target has copies that the last search did not reach
        self._trouble = ""
        self.blocked = ""

    @property
    def checkpoint(self) -> Checkpoint:
        """What the target should know now."""
        position = self.position
        return Checkpoint(
            self._first.target_broker, self._first.target_queue_id, position.start, position.next_offset,
            position.map.target_end, position.has_copies, position.epoch, position.map.runs, self.source_bounds.end,
            self._missed, self._refused, self._copied_ms, self._clock.wall_ms(), self.blocked or self._trouble,
            position.map.echo_end, None if position.origins is None else position.origins.streams,
        )  # fmt: skip

    @property
    def lag(self) -> int:
        """Messages of the source that are not copied yet, as far as they are known."""
        return max(0, self.source_bounds.end - self.position.next_offset)

    @property
    def lag_s(self) -> float:
        """Age of the last copy, s, while messages are missing; 0 before the first copy."""
        return late_s(self.lag, self._copied_ms, self._clock.wall_ms())

    @property
    def missed(self) -> int:
        """Messages that expired at the source before they were copied."""
        return self._missed

    async def run(self) -> None:
        """Copy until cancelled; failures are logged once and tried again."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            if not self._rules.is_open():
                self.position.lose()
                await self._rules.pause(_BACKOFF_FIRST_S)
                continue
            try:
                await self._step()
            except SprocketError as error:
                self.position.lose()
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    logger.warning("event=copy_failed queue=%s reason=%r", self.queue, self._trouble)
                await self._rules.pause(_BLOCKED_S if self.blocked else backoff_s)
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
            else:
                backoff_s, self._trouble, self.blocked = _BACKOFF_FIRST_S, "", ""

    async def _step(self) -> None:
        session = await self._target.session()
        if not self.position.is_of(session):
            await self._locate(session)
        messages = await self._source.messages()
        if not messages:
            return  # look whether the target's master is the same, which may have lost copies
        if messages[0].queue_offset < self.position.next_offset:
            await self._read_again(messages)
            return
        is_single = messages[0].queue_offset < self._single_until
        part = await self._portion(messages, 1 if is_single else MAX_BATCH_MESSAGES)
        placed = Placed(0, 0)
        if part.copies:
            await self._rules.admit(sum(copy.size_bytes for copy in part.copies))
            # The wait for messages may have been long.
            if not self._rules.is_open() or not self.position.holds(session, self._clock.monotonic()):
                self.position.lose()
                return
            try:
                placed = await self._target.send(session, part.copies)
            except CopyRefused as error:
                await self._refuse(part, messages, str(error))
                return
            if placed.duplicates:
                # Another replicator was here, or the checkpoint is wrong: the target says what is there.
                self.position.lose()
                self._has_more = True
                return
            self.copied += len(part.copies)
            self.copied_bytes += sum(len(copy.body) for copy in part.copies)
            self._copied_ms = part.copies[-1].stored_ms
        offsets = [copy.offset for copy in part.copies]
        self.position.sent(offsets, placed.first_place, part.echoes, self._clock.monotonic())
        self.left_out += part.taken - len(part.copies)
        self._advance(part, messages)

    async def _read_again(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take some messages for their origins only: they are copied."""
        copied = takewhile(lambda message: message.queue_offset < self.position.next_offset, messages)
        some = list(islice(copied, PAGE))
        self._note_origins(some)
        self._source.drop(len(some))
        await self._rules.pause(PAUSE_S)

    async def _portion(self, messages: Sequence[ReceivedMessage], max_messages: int) -> Portion:
        rules = self._rules
        # A batch is compressed in tens of milliseconds, in a thread.  More messages may come meanwhile.
        taken = tuple(messages) if rules.compresses else messages
        made = partial(
            portion, taken, self.queue, self._target_queue, self.position.epoch, forwards=rules.forwards,
            max_bytes=rules.batch_bytes, max_messages=max_messages, compresses=rules.compresses,
        )  # fmt: skip
        return await asyncio.to_thread(made) if rules.compresses else made()

    def _note_origins(self, messages: Iterable[ReceivedMessage]) -> None:
        origins = self.position.origins
        if origins is not None:
            for message in messages:
                origins.note(message.queue_offset, origin_of(message, self.queue))

    def _advance(self, part: Portion, messages: Sequence[ReceivedMessage]) -> None:
        self._note_origins(islice(messages, part.taken))
        self.position.advance(part.next_offset)
        end = max(self.source_bounds.end, self._source.end, part.next_offset)
        self.source_bounds = self.source_bounds._replace(end=end)
        self._source.drop(part.taken)

    async def _refuse(self, part: Portion, messages: Sequence[ReceivedMessage], reason: str) -> None:
        """Find the message that the target refuses, by sending each alone; then leave it out, or stop."""
        copies = part.copies
        if len(copies) > 1:
            self._single_until = copies[-1].offset + 1
            return
        if not self._rules.skips_refused:
            self.blocked = f"the target refuses message {copies[0].offset}: {reason}"
            raise CopyRefused(self.blocked)
        await self._rules.refused(self.queue, copies[0], reason)
        self._refused += 1
        self.position.sent((), 0, part.echoes, self._clock.monotonic())
        self._advance(part, messages)

    async def _locate(self, session: object) -> None:
        """Find where to go on, and read from there."""
        known = self._rules.known(self.queue)
        if known is not None and known.epoch > self.position.epoch:  # another replicator was here
            self.position = Position(known, keeps_origins=self._rules.keeps_origins)
            self._kept_epoch = known.epoch
        position = self.position
        bounds = await self._target.bounds()
        floor = 0 if self._has_more else position.floor
        found = await self._target.last_copy(self.queue, max(floor, bounds.begin), bounds.end)
        self._has_more = False
        was_lost = position.is_lost(found, bounds.begin, bounds.end)
        if was_lost:
            logger.warning("event=target_lost_copies queue=%s from=%d", self.queue, position.floor)
            found = await self._target.last_copy(self.queue, bounds.begin, bounds.end)
        now_s = self._clock.monotonic()
        stretch = position.locate(found, bounds.end, was_lost=was_lost, session=session, now_s=now_s)
        self.source_bounds = source = await self._source.bounds()
        if stretch is not None:
            kept = stretch._replace(begin=max(stretch.begin, bounds.begin))
            await self._places.read(kept, position, source)
            if await self._target.session() is not session:
                raise ClientError("the target's master changed while its copies were read")
            position.close(kept)
        if source.end < position.next_offset:
            logger.warning(
                "event=source_lost_messages queue=%s copied=%d left=%d", self.queue, position.next_offset, source.end
            )
            position.rewind(source.end, stream_of(self.queue))
        if missed := position.expired(source.begin):
            logger.error("event=messages_missed queue=%s count=%d to=%d", self.queue, missed, source.begin)
            self._missed += missed
        position.take_streams(known, source.begin, MAX_MESSAGES)
        if position.epoch != self._kept_epoch:
            # Before its first copy: one who goes on in the old epoch would send numbers that the target drops.
            await self._rules.keep(self.queue, self.checkpoint)
            self._kept_epoch = position.epoch
        self._source.seek(position.read_from)
