"""State that entry and delivery of the timer share: files, progress, and counts."""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed, DiskFull, StoreBusy, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.config.store_config import StoreConfig
from store.config.timer_config import BLANK_SLOTS
from store.delivery import Delivery, Outstanding, deliver_fitting
from store.message_store import MessageStore
from store.moves import new_moves
from store.record.record import PendingMessage, TagsCodes
from store.timer.timer_log import TimerLog
from store.timer.timer_progress import Progress, ProgressLog
from store.timer.timer_wheel import TimerWheel

_log = logging.getLogger(__name__)

# Called with a topic and the change in its number of waiting messages.
OnCount = Callable[[str, int], None]


class TimerState:
    """State of one timer.  It belongs to the store's owner thread."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        on_count: OnCount,
        barred_topics: Collection[str],
        slots_total: int,
        delivery: Delivery,
    ) -> None:
        config = store.config
        root = config.store_path_root_dir
        self.store = store
        self.clock = clock
        self.on_count = on_count
        # Topics to which nothing may be delivered.
        self.barred_topics = frozenset({*barred_topics, TIMER_TOPIC})
        self.slot_ms = config.slot_ms
        self.wheel = TimerWheel(store.disk, root / "timerwheel", self.slot_ms, slots_total)
        self.log = TimerLog(store.disk, root / "timerlog", config.mapped_file_size_timer_log)
        self.tags_codes = TagsCodes(config.message_delay_level)
        self.progress = Progress()
        self.unflushed = ProgressLog(self.progress)
        # Time of the latest slot in use.
        self.latest_ms = 0
        # Messages in the wheel.
        self.waiting = 0
        self.enqueued = 0
        self.dequeued = 0
        self._delivery = delivery
        # Delivery in flight, if it does not finish at once; nothing continues before its end.
        self.outstanding: Outstanding | None = None
        self.on_delivered: list[Callable[[], None]] = []

    @property
    def config(self) -> StoreConfig:
        """The present configuration."""
        return self.store.config

    @property
    def roll_window_ms(self) -> int:
        """How far ahead, ms, a message may enter this wheel."""
        return min(self.config.roll_window_ms, (self.wheel.ring_slots // 2 - BLANK_SLOTS) * self.slot_ms)

    @property
    def is_rebuilding(self) -> bool:
        """Whether messages that were in a lost wheel have yet to enter.

        Until they have, no slot is delivered: `read_ms` must stay where the lost wheel was, because it says which of
        them were delivered.  Those that are due meanwhile are delivered as late when they enter.
        """
        progress = self.progress
        if not progress.rebuild_until:
            return False
        return max(progress.queue_offset, self.store.min_offset(TIMER_TOPIC, 0)) < progress.rebuild_until

    def now_slot_ms(self) -> int:
        """Return the slot of now; slots before it are over and due."""
        return self.clock.wall_ms() // self.slot_ms * self.slot_ms

    def advance(self, progress: Progress) -> None:
        """Set `progress`.  It may be written once what is in the CommitLog now is flushed."""
        if progress.rebuild_until and progress.queue_offset >= progress.rebuild_until:
            progress = replace(progress, rebuild_until=0)
        self.progress = progress
        self.unflushed.note(self.store.wrote_offset, replace(progress, log_position=self.log.end))

    def deliver(self, messages: list[PendingMessage], done: Callable[[], None]) -> None:
        """Deliver due messages, then call `done`.  Raises `StoreError` if the store accepts nothing now.

        A message that can never be accepted is dropped, as in RocketMQ.
        """

        def delivered() -> None:
            was_outstanding, self.outstanding = self.outstanding is not None, None
            done()
            if was_outstanding:
                for listener in self.on_delivered:
                    listener()

        try:
            self.outstanding = deliver_fitting(self._delivery, messages, delivered, _log_dropped)
        except StoreError as error:
            self._skip(error, len(messages))
            done()

    def new_moves(self) -> Any | None:
        """Return what `deliver_moves` delivers, yet empty; None if messages are to be delivered."""
        return new_moves(self.store, self.barred_topics) if self._delivery.is_own_log else None

    def deliver_moves(self, moves: Any, done: Callable[[], None]) -> None:
        """Do what `deliver` does, with records that the engine makes."""
        try:
            self.store.append_encoded(moves)
        except StoreError as error:
            self._skip(error, len(moves))
        done()

    def _skip(self, error: StoreError, messages: int) -> None:
        """Raise `error`, unless it is an unknown one and timerSkipUnknownError tells to drop the messages then."""
        if isinstance(error, (DiskFull, StoreBusy, DiskFailed)) or not self.config.timer_skip_unknown_error:
            raise error
        peer_lines.error(_log, "", "event=timed_messages_dropped count=%d reason=%r", messages, str(error))

    def cancel(self) -> None:
        """Abandon the delivery in flight; its messages stay due."""
        if self.outstanding is not None:
            self.outstanding.cancel()
            self.outstanding = None


def _log_dropped(message: PendingMessage, reason: str) -> None:
    peer_lines.error(_log, "", "event=timed_message_dropped topic=%s reason=%r", message.topic, reason)
