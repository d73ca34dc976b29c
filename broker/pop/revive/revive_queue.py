"""One queue of the revive topic: reads its records in order, and redelivers what was not acknowledged.

Source: RocketMQ 5.3.3, `PopReviveService`.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from broker.core import BrokerCore
from broker.failover.escaped_message import EscapedMessage
from broker.pop.records import ACK_TAG, BATCH_ACK_TAG, CK_TAG, AckMsg, BatchAckMsg, PopCheckPoint
from broker.pop.retry_record import records_in
from broker.pop.revive.remote_messages import RemoteMessages
from broker.pop.revive.remote_revive import RemoteRevive
from broker.pop.revive.revive_record import read_record
from broker.pop.revive.revive_window import Held, ReviveWindow
from broker.pop.revive.reviver import CheckpointLog, Due, RevivedListener, ReviveFigures, Reviver
from sprocket.common.errors import CorruptRecord
from sprocket.common.failpoints import failpoint
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.properties import TAGS
from sprocket.remoting.message.topic_names import REVIVE_GROUP
from store.delivery import Outstanding
from store.queue.get_result import GetStatus

logger = logging.getLogger(__name__)

_MAX_READ_BYTES: Final = 1 << 20
_CK, _ACK, _BATCH_ACK = CK_TAG.encode(), ACK_TAG.encode(), BATCH_ACK_TAG.encode()
_COMMITTED: Final = failpoint("revive.committed")

_decode_checkpoint: Final = msgspec.json.Decoder(PopCheckPoint, strict=False).decode
_decode_ack: Final = msgspec.json.Decoder(AckMsg, strict=False).decode
_decode_batch_ack: Final = msgspec.json.Decoder(BatchAckMsg, strict=False).decode


class ReviveQueue:
    """One revive queue, in the event loop's thread.  `turn` does a bounded amount of work.

    The committed offset of the revive group is the last record that is done: what was written for it is flushed.
    """

    def __init__(
        self,
        core: BrokerCore,
        log: CheckpointLog,
        queue_id: int,
        is_timer_behind: Callable[[], bool],
        *,
        on_revived: list[RevivedListener],
        on_delivered: Callable[[], None],
    ) -> None:
        self._core = core
        self._log = log
        self.queue_id = queue_id
        self._is_timer_behind = is_timer_behind
        self.figures = ReviveFigures()
        self._reviver = Reviver(core, log, queue_id, self.figures, on_revived)
        messages = RemoteMessages(core.config, core.client, core.clock)
        self._remote = RemoteRevive(core.config.broker.broker_name, messages, self._reviver)
        self._committed = -1
        self._window = ReviveWindow(core.config.broker.broker_name, 0)
        self._has_unread = True
        # The delivery under way, if it is not immediate; nothing else is revived meanwhile.
        self._outstanding: Outstanding | None = None
        self._on_delivered = on_delivered
        self.worked = 0  # records that the last turn read, and messages that it revived
        # (end of the log when an offset was done, that offset): the first that is not flushed, and the newest.
        self._positions: list[tuple[int, int]] = []

    def arrived(self) -> None:
        """Note that the queue has more records."""
        self._has_unread = True

    def load(self) -> None:
        """Continue after the committed offset, or at the end of a queue that is shorter."""
        store, topic = self._core.store, self._log.topic
        committed = self._core.offsets.query(REVIVE_GROUP, topic, self.queue_id)
        # Recovery clamps the offset of lost records to the end; the next record must still be read.
        last = store.max_offset(topic, self.queue_id) - 1
        if committed > last:
            logger.warning("event=revive_offset_corrected queue=%d from=%d to=%d", self.queue_id, committed, last)
            self._core.offsets.assign(REVIVE_GROUP, topic, self.queue_id, last)
            committed = last
        self._committed = committed
        self._positions.clear()
        self._has_unread = True
        self._window = ReviveWindow(self._core.config.broker.broker_name, committed + 1)

    # Figures

    @property
    def is_used(self) -> bool:
        """Whether the queue was ever written to."""
        return self._core.store.max_offset(self._log.topic, self.queue_id) > 0

    @property
    def behind_messages(self) -> int:
        """Number of records that are not done."""
        end = self._core.store.max_offset(self._log.topic, self.queue_id)
        return max(0, end - 1 - self._window.done_offset)

    @property
    def behind_ms(self) -> int:
        """Milliseconds since the first held checkpoint was due; 0 if it is not due."""
        oldest = self._window.oldest_revive_at
        return 0 if oldest is None else max(0, self._core.clock.wall_ms() - oldest)

    # Work

    @property
    def has_uncommitted(self) -> bool:
        """Whether something is done but not flushed."""
        return bool(self._positions)

    def turn(self, budget: int) -> float | None:
        """Read and revive about `budget` of each; return the seconds until the next turn, None if nothing is held.

        Raises StoreError if the store refuses; nothing is lost then.
        """
        read_before, revived_before = self._window.next_offset, self.figures.retried + self.figures.rewritten
        is_caught_up = not self._has_unread or self._read(budget)
        # Before anything is written, because that may add a record to this queue.
        self._has_unread = not is_caught_up
        monotonic = self._core.clock.monotonic()
        nothing_on_its_way = self._window.is_full or (is_caught_up and not self._is_timer_behind())
        is_through = self._revive(monotonic, nothing_on_its_way, budget)
        self.commit()
        self.worked = self._window.next_offset - read_before
        self.worked += self.figures.retried + self.figures.rewritten - revived_before
        if not is_through or (not is_caught_up and not self._window.is_full):
            return 0.0
        due = self._window.next_due()
        if due is None:
            return None
        # A checkpoint that is due by its time waits for other records to be read.
        return max(due - monotonic, 0.1)

    # Reading

    def _read(self, budget: int) -> bool:
        """Read about `budget` records into the window; return whether the end is reached."""
        window = self._window
        end = window.next_offset + budget
        while window.next_offset < end and not window.is_full:
            # The store returns some at a time, few if they are not in memory.
            if self._read_some(end - window.next_offset):
                return True
        return False

    def _read_some(self, count: int) -> bool:
        """Read some records, or skip a damaged one; return whether the end is reached."""
        window, store = self._window, self._core.store
        try:
            result = store.get(self._log.topic, self.queue_id, window.next_offset, count, _MAX_READ_BYTES)
        except CorruptRecord as damage:
            peer_lines.error(
                logger, "", "event=revive_record_dropped queue=%d offset=%d reason=%r",
                self.queue_id, window.next_offset, damage.reason,
            )  # fmt: skip
            window.next_offset += 1
            return False
        if result.status is GetStatus.FOUND:
            now, monotonic = self._core.clock.wall_ms(), self._core.clock.monotonic()
            for record in records_in(result.slices):
                self._take(record, now, monotonic)
        elif result.status is GetStatus.OFFSET_OVERFLOW_BADLY:
            # The queue was created again.
            logger.warning("event=revive_queue_shorter queue=%d offset=%d", self.queue_id, window.next_offset)
            window.next_offset = result.min_offset
            self._committed = result.min_offset - 1
            return False
        window.next_offset = max(window.next_offset, result.next_offset)
        return window.next_offset >= result.max_offset

    def _take(self, view: memoryview, now: int, monotonic: float) -> None:
        record = read_record(view)
        if isinstance(record, str):
            peer_lines.error(logger, "", "event=revive_record_dropped queue=%d reason=%r", self.queue_id, record)
            return
        queue_offset, deliver_at, tag, body = record
        window = self._window
        try:
            if tag == _CK:
                checkpoint = _decode_checkpoint(body)
                checkpoint.ro = queue_offset
                self.figures.checkpoints += 1
                self.figures.read[checkpoint.c, checkpoint.t, "CK"] += 1
                window.take_checkpoint(checkpoint, deliver_at, now, monotonic)
            elif tag == _ACK:
                ack = _decode_ack(body)
                self.figures.acks += 1
                self.figures.read[ack.c, ack.t, "ACK"] += 1
                window.take_ack(ack, (ack.ao,), queue_offset, deliver_at, now, monotonic)
            elif tag == _BATCH_ACK:
                acks = _decode_batch_ack(body)
                self.figures.acks += 1
                self.figures.read[acks.c, acks.t, "ACK"] += 1
                window.take_ack(acks, acks.aol, queue_offset, deliver_at, now, monotonic)
            else:
                window.skip(deliver_at)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            peer_lines.error(
                logger, "", "event=revive_record_dropped queue=%d offset=%d reason=%r",
                self.queue_id, queue_offset, str(error),
            )  # fmt: skip

    def note_escaped(self, record: EscapedMessage) -> None:
        """Apply an acknowledgement that goes to another master's log, if its checkpoint is held here."""
        tag = record.properties.get(TAGS)
        if tag == ACK_TAG:
            ack = _decode_ack(record.body)
            self._window.acknowledge(ack, (ack.ao,))
        elif tag == BATCH_ACK_TAG:
            acks = _decode_batch_ack(record.body)
            self._window.acknowledge(acks, acks.aol)

    # Reviving

    def _revive(self, monotonic: float, nothing_on_its_way: bool, budget: int) -> bool:
        """Revive what is settled, about `budget` messages; return whether that is all."""
        taken: list[Held] = []
        due: list[Due] = []
        if self._outstanding is not None:
            return True

        def done() -> None:
            for held in taken:
                self._window.finish(held)
            if self._outstanding is not None:
                self._outstanding = None
                self._on_delivered()

        try:
            while len(due) < budget:
                held = self._window.take_settled(monotonic, nothing_on_its_way)
                if held is None:
                    break
                if self._remote.takes(held.checkpoint):
                    self._begin_remote(held)
                    continue
                taken.append(held)
                due += self._reviver.due(held)
            if due:
                self._outstanding = self._reviver.deliver(due, done)
            else:
                done()
        except BaseException:
            for held in taken:
                self._window.put_back(held)
            raise
        return len(due) < budget or self._outstanding is not None

    def _begin_remote(self, held: Held) -> None:
        window = self._window

        def done() -> None:
            window.finish(held)
            self._on_delivered()

        self._remote.begin(held, done)

    def pause(self) -> None:
        """Cancel what is under way; call `load` before the next turn."""
        if self._outstanding is not None:
            self._outstanding.cancel()
            self._outstanding = None
        self._remote.stop()

    # Offsets

    def commit(self) -> None:
        """Commit what is done and flushed, as a consumer group's offset."""
        store, positions = self._core.store, self._positions
        done = self._window.done_offset
        if done > (positions[-1][1] if positions else self._committed):
            # Everything it stands for, with the records that were read, is before the end of the log.
            del positions[1:]
            positions.append((store.wrote_offset, done))
        while positions and positions[0][0] <= store.flushed_offset:
            self._committed = positions.pop(0)[1]
            self._core.offsets.commit(REVIVE_GROUP, self._log.topic, self.queue_id, self._committed)
            _COMMITTED()
