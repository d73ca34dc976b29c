"""Redelivery of popped messages that were not acknowledged: the readers of the revive topic, driven by one timer.

Only a master revives.  Source: RocketMQ 5.3.3, `PopReviveService`, which has a thread per queue.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from broker.core import BrokerCore
from broker.failover.escaped_message import EscapedMessage
from broker.pop.records import ACK_INTERVAL_MS
from broker.pop.revive.revive_queue import ReviveQueue
from broker.pop.revive.revive_window import SETTLE_MS
from broker.pop.revive.reviver import CheckpointLog, RevivedListener
from broker.service import Service
from broker.turns import NextTurn
from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.figures import Declared, FigureFamily
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.flush.confirmation import Arrival
from store.timer.timer_message_store import TimerMessageStore

logger = logging.getLogger(__name__)

# Records that one turn of the loop reads, and messages that it revives, before other work; at most twice as many.
_TURN_RECORDS: Final = 256
_RETRY_S: Final = 1.0
# How often to check whether what is done is flushed.
_COMMIT_S: Final = 0.5


class ReviveService(Service):
    """One timer for all queues.

    `on_revived` is called with each checkpoint whose messages were stored in the retry topic.  Without a wheel `timer`
    is None, and records are in their queues at once.
    """

    def __init__(
        self,
        core: BrokerCore,
        log: CheckpointLog,
        *,
        timer: TimerMessageStore | None = None,
        on_revived: Sequence[RevivedListener] = (),
    ) -> None:
        self._core = core
        self._log = log
        self.timer = timer
        self.on_revived = list(on_revived)
        self.queues: list[ReviveQueue] = []
        self._next = 0  # index of the queue whose turn is next
        self._next_turn = NextTurn(self._on_timer, core.clock.monotonic, core.call_later)
        self._is_running = False

    def load(self) -> None:
        """Find where each queue continues."""
        core, topic = self._core, self._log.topic
        config = core.topics.get(topic)
        # The topic may have more queues than reviveQueueNum, if that was lowered.
        count = max(
            core.config.broker.revive_queue_num,
            0 if config is None else config.read_queue_nums,
            *(queue_id + 1 for name, queue_id in core.store.usual_queues() if name == topic),
            0,
        )
        for queue_id in range(count):
            queue = ReviveQueue(
                core,
                self._log,
                queue_id,
                self.is_timer_behind,
                on_revived=self.on_revived,
                on_delivered=self._delivered,
            )
            queue.load()
            self.queues.append(queue)

    def take_over(self) -> None:
        """Continue after the offsets that another replica has committed."""
        for queue in self.queues:
            queue.load()

    def note_escaped(self, record: EscapedMessage) -> None:
        """Apply a record that goes to another master's log, see `ReviveQueue.note_escaped`."""
        if record.topic == self._log.topic and record.queue_id < len(self.queues):
            try:
                self.queues[record.queue_id].note_escaped(record)
            except msgspec.DecodeError as error:
                peer_lines.error(
                    logger, "", "event=revive_record_dropped queue=%d reason=%r", record.queue_id, str(error)
                )

    def _delivered(self) -> None:
        if self._is_running:
            self._next_turn.wake_in(0.0)

    def activate(self) -> None:
        """Start to revive."""
        self._is_running = True
        self._core.store.on_arrival_of.setdefault(self._log.topic, []).append(self._arrived)
        self._next_turn.wake_in(0.0)

    def deactivate(self) -> None:
        """Stop reviving, and commit what is done."""
        if not self._is_running:
            return
        self._is_running = False
        self._core.store.on_arrival_of[self._log.topic].remove(self._arrived)
        self._next_turn.cancel()
        self.save()
        for queue in self.queues:
            queue.pause()

    def save(self) -> None:
        """Commit what is done: more of it may be flushed by now."""
        for queue in self.queues:
            queue.commit()

    def figures(self) -> list[Declared]:
        """Return the lag of each queue in use.

        Source of the figures: RocketMQ 5.3.3, `PopMetricsManager` (pop_revive_lag, pop_revive_latency).
        """
        return [
            FigureFamily(
                "popReviveLag_<queue>",
                "records that a revive queue has yet to process, for each queue in use",
                lambda: {queue.queue_id: queue.behind_messages for queue in self.queues if queue.is_used},
            ),
            FigureFamily(
                "popReviveLatency_<queue>",
                "age of the oldest record that a revive queue has yet to process, ms",
                lambda: {queue.queue_id: queue.behind_ms for queue in self.queues if queue.is_used},
            ),
        ]

    def is_timer_behind(self) -> bool:
        """Return whether the timer may still deliver an acknowledgement that was due `SETTLE_MS` ago."""
        timer = self.timer
        if timer is None:
            return False
        if timer.dequeue_behind_ms >= SETTLE_MS:
            return True
        if not timer.enqueue_behind:
            return False
        entered_at = self._core.store.store_time(TIMER_TOPIC, 0, timer.queue_offset)
        return entered_at >= 0 and self._core.clock.wall_ms() - entered_at >= ACK_INTERVAL_MS

    # The timer

    def _arrived(self, arrivals: list[Arrival]) -> None:
        for queue, _, _ in arrivals:
            if queue.queue_id < len(self.queues):
                self.queues[queue.queue_id].arrived()
                self._next_turn.wake_in(self._core.config.broker.revive_interval / 1000)

    def _on_timer(self) -> None:
        if not self._is_running:
            return
        wait_s = self.turn()
        if wait_s is not None:
            self._next_turn.wake_in(wait_s)

    def turn(self) -> float | None:
        """Let queues work in turn; return the seconds until there is more to do, None if only arrivals bring more."""
        wait_s: float | None = None
        worked = 0
        for number in range(len(self.queues)):
            queue = self.queues[self._next]
            self._next = (self._next + 1) % len(self.queues)
            seconds = self._turn_of(queue)
            if seconds is not None:
                wait_s = seconds if wait_s is None else min(wait_s, seconds)
            worked += queue.worked
            if worked >= _TURN_RECORDS and number + 1 < len(self.queues):
                return 0.0
        return wait_s

    def _turn_of(self, queue: ReviveQueue) -> float | None:
        try:
            seconds = queue.turn(_TURN_RECORDS)
        except DiskFailed:
            return None  # Latched: the store reports it to its owner.
        except StoreError as error:
            logger.warning("event=revive_postponed queue=%d reason=%r", queue.queue_id, str(error))
            return _RETRY_S
        if queue.has_uncommitted:
            return _COMMIT_S if seconds is None else min(seconds, _COMMIT_S)
        return seconds
