"""Buffer of pops in memory, so that a pop that is soon acknowledged is never written to the log.

The offset of a buffered pop is not committed: after a broker dies its messages are redelivered.  A pop leaves the
buffer when all its messages are acknowledged.  Otherwise its checkpoint and its acknowledgements are written to the
revive topic, after a time limit or when the broker stops.
Source: RocketMQ 5.3.3, `PopBufferMergeService` (enablePopBufferMerge).
"""

import heapq
import logging
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple

import msgspec

from broker.core import BrokerCore
from broker.pop.pop_offsets import PopOffsets, Taken
from broker.pop.records import AckMsg, BatchAckMsg, PopCheckPoint
from broker.pop.revive.revive_log import ReviveLog
from broker.turns import NextTurn
from sprocket.common.errors import SprocketError, StoreError
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.metrics.distribution import Distributions
from store.record.record import PendingMessage

logger = logging.getLogger(__name__)

# A pop accepts no acknowledgement this long before it leaves.
_LEAVING_MS: Final = 1500
# Pops that one turn of the loop writes.
_BATCH: Final = 256
_RETRY_S: Final = 1.0
_MAX_SLEEP_S: Final = 1.0
_BEFORE_WRITE: Final = failpoint("pop_buffer.before_write")
_WRITTEN: Final = failpoint("pop_buffer.written")


class BufferKey(NamedTuple):
    """What a pop of a queue and its acknowledgements have in common."""

    topic: str
    group: str
    queue_id: int
    first_offset: int
    pop_time_ms: int
    broker_name: str | None


class BufferedPop:
    """One pop in memory; `is_open` until it leaves."""

    __slots__ = ("checkpoint", "is_open", "revive_queue_id", "taken")

    def __init__(self, checkpoint: PopCheckPoint, revive_queue_id: int, taken: Taken) -> None:
        self.checkpoint = checkpoint
        self.revive_queue_id = revive_queue_id
        self.taken = taken
        self.is_open = True


class MergeBuffer:
    """Buffered pops.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, log: ReviveLog, offsets: PopOffsets) -> None:
        self._config = core.config
        self._clock = core.clock
        self._store = core.store
        self._log = log
        self._offsets = offsets
        self._held: dict[BufferKey, BufferedPop] = {}
        # (time of leaving, number, pop), also of pops that have left.
        self._leaving: list[tuple[int, int, BufferedPop]] = []
        self._numbers = count()
        self._next_turn = NextTurn(self._on_timer, core.clock.monotonic, core.call_later, _MAX_SLEEP_S)
        self._is_closed = False
        # Times, ms, to write the pops that leave (`PopMetricsManager`: pop_buffer_scan_time_consume).
        self.scans = Distributions((1, 10, 100, 1_000, 2_000, 3_000))
        self.scans.of(())  # shown although nothing has left

    def __len__(self) -> int:
        return len(self._held)

    def add(self, checkpoint: PopCheckPoint, revive_queue_id: int, taken: Taken) -> bool:
        """Buffer a pop; return False if it must be written now."""
        broker = self._config.broker
        if not broker.enable_pop_buffer_merge or self._is_closed or self._log.is_elsewhere:
            return False
        leaves_ms = self._leaves_ms(checkpoint)
        key = _key(checkpoint)
        if (
            leaves_ms - self._clock.wall_ms() < _LEAVING_MS
            or len(self._held) > broker.pop_ck_max_buffer_size
            or self._offsets.uncommitted(*key[:3]) > broker.pop_ck_offset_max_queue_size
            or key in self._held
        ):
            return False
        held = self._held[key] = BufferedPop(checkpoint, revive_queue_id, taken)
        heapq.heappush(self._leaving, (leaves_ms, next(self._numbers), held))
        self._wake_at(leaves_ms)
        return True

    def _leaves_ms(self, checkpoint: PopCheckPoint) -> int:
        broker = self._config.broker
        return min(
            checkpoint.revive_time - broker.pop_ck_stay_buffer_time_out, checkpoint.pt + broker.pop_ck_stay_buffer_time
        )

    def acknowledge(self, ack: AckMsg) -> bool:
        """Apply an acknowledgement; return False if its pop is not here, or about to leave: write it then."""
        held = self.find(ack)
        if held is None:
            return False
        checkpoint = held.checkpoint
        for offset in ack.aol if isinstance(ack, BatchAckMsg) else (ack.ao,):
            index = checkpoint.index_of(offset)
            if index >= 0:
                checkpoint.bm |= 1 << index
            else:
                peer_lines.warning(
                    logger, "", "event=ack_of_unpopped topic=%s group=%s queue=%d offset=%d", checkpoint.t,
                    checkpoint.c, checkpoint.q, offset,
                )  # fmt: skip
        if checkpoint.bm == (1 << checkpoint.n) - 1:
            self._leave(_key(checkpoint), held)
            self._offsets.safe(held.taken)
        return True

    def holds(self, ack: AckMsg) -> bool:
        """Return whether `acknowledge` would apply it."""
        return self.find(ack) is not None

    def find(self, ack: AckMsg) -> BufferedPop | None:
        """Return the pop of an acknowledgement; None if it is not here, or about to leave."""
        if not self._held:
            return None
        held = self._held.get(BufferKey(ack.t, ack.c, ack.q, ack.so, ack.pt, ack.bn))
        if held is None or self._leaves_ms(held.checkpoint) - self._clock.wall_ms() < _LEAVING_MS:
            return None
        return held

    def _leave(self, key: BufferKey, held: BufferedPop) -> None:
        del self._held[key]
        held.is_open = False
        if len(self._leaving) > 2 * len(self._held) + _BATCH:
            self._leaving = [entry for entry in self._leaving if entry[2].is_open]
            heapq.heapify(self._leaving)

    def forget_gone(self, is_there: Callable[[str], bool]) -> None:
        """Forget pops of deleted topics."""
        for key, held in list(self._held.items()):
            if not is_there(key.topic):
                self._leave(key, held)

    # Writing

    def _wake_at(self, at_ms: int) -> None:
        self._next_turn.wake_in((at_ms - self._clock.wall_ms()) / 1000)

    def _on_timer(self) -> None:
        began = self._clock.monotonic()
        try:
            self._write(self._due())
            self.scans.add((), int((self._clock.monotonic() - began) * 1000))
        except SprocketError as error:
            logger.warning("event=pop_buffer_not_written reason=%r pops=%d", str(error), len(self._held))
            self._next_turn.wake_in(_RETRY_S)
            return
        if self._leaving:
            self._wake_at(self._leaving[0][0])

    def _due(self, *, all_of_them: bool = False) -> list[BufferedPop]:
        now = self._clock.wall_ms()
        due: list[BufferedPop] = []
        while self._leaving and len(due) < _BATCH and (all_of_them or self._leaving[0][0] <= now):
            held = heapq.heappop(self._leaving)[2]
            if held.is_open:
                due.append(held)
        return due

    def _write(self, due: list[BufferedPop]) -> bool:
        """Write pops and let them leave; return whether there were any.  Raises SprocketError; they stay then."""
        if not due:
            return False
        _BEFORE_WRITE()
        try:
            messages = [message for held in due for message in self._records(held)]
            end = self._log.append(messages, len(due))
        except SprocketError:
            for held in due:
                heapq.heappush(self._leaving, (self._clock.wall_ms(), next(self._numbers), held))
            raise
        _WRITTEN()
        for held in due:
            self._leave(_key(held.checkpoint), held)

        def written(error: StoreError | None) -> None:
            if error is None:
                for held in due:
                    self._offsets.safe(held.taken)

        self._store.when_confirmed(end, written)
        return True

    def _records(self, held: BufferedPop) -> list[PendingMessage]:
        """Return the records of a pop's checkpoint and of its acknowledgements."""
        checkpoint, queue_id = held.checkpoint, held.revive_queue_id
        acknowledged = [index for index in range(checkpoint.n) if checkpoint.bm >> index & 1]
        offsets = [checkpoint.offset_at(index) for index in acknowledged]
        # The records that follow say what is acknowledged.
        messages = [self._log.checkpoint(msgspec.structs.replace(checkpoint, bm=0), queue_id)]
        if offsets and self._config.broker.enable_pop_batch_ack:
            acks: list[AckMsg] = [BatchAckMsg(-1, *_common(checkpoint), aol=offsets)]
        else:
            acks = [AckMsg(offset, *_common(checkpoint)) for offset in offsets]
        return messages + [self._log.ack(ack, queue_id, checkpoint.revive_time) for ack in acks]

    def close(self) -> None:
        """Write everything, for the next start.  What the store refuses is redelivered then."""
        self._is_closed = True
        self._next_turn.cancel()
        try:
            while self._write(self._due(all_of_them=True)):
                pass
        except SprocketError as error:
            logger.warning("event=pop_buffer_not_written reason=%r pops=%d", str(error), len(self._held))


def _key(checkpoint: PopCheckPoint) -> BufferKey:
    return BufferKey(checkpoint.t, checkpoint.c, checkpoint.q, checkpoint.so, checkpoint.pt, checkpoint.bn)


def _common(checkpoint: PopCheckPoint) -> tuple[int, str, str, int, int, str | None]:
    """Return what an acknowledgement has of its checkpoint: the fields of `AckMsg` after the first."""
    return checkpoint.so, checkpoint.c, checkpoint.t, checkpoint.q, checkpoint.pt, checkpoint.bn
