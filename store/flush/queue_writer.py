"""Writing of ConsumeQueues behind the log: what appends left in memory goes to the files, many entries at a time.

Source: RocketMQ 5.3.3, `DefaultMessageStore.ReputMessageService`, which makes the entries themselves behind the log.
Here they are readable at once, and only their files are behind.
"""

from collections.abc import Callable
from typing import Final

from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFailed, DiskFull, StoreError
from sprocket.common.failpoints import failpoint
from store.flush.checkpoint import Checkpoint
from store.flush.confirmation import Confirmation
from store.flush.group_commit import Notify
from store.queue.queue_files import QueueFiles, Unwritten
from store.worker import Workers

# An entry waits for one interval and what the owner thread does meanwhile, 100 ms at most unless the disk is slow.
_INTERVAL_S: Final = 0.05
# Senders wait no longer than this while many queues are written.
_TURN_S: Final = 0.002
_WRITTEN: Final = failpoint("queue_writer.written")


class QueueWriter:
    """Writer of the ConsumeQueues of one store.  It belongs to the owner thread, except `limited`.

    It calls `wrote` with None after everything was written, or with the error when there is no room.
    """

    def __init__(
        self,
        clock: Clock,
        unwritten: Unwritten,
        confirmation: Confirmation,
        wrote: Callable[[DiskFull | None], None],
        notify: Notify,
        workers: Workers,
    ) -> None:
        self._clock = clock
        self._unwritten = unwritten
        self._confirmation = confirmation
        self._wrote = wrote
        self._is_full = False
        self._notify = notify
        self._worker = workers("store-write-queues", self._ask, _INTERVAL_S)
        # What is left of this round, and the offset and store timestamp that all queues will then have reached.
        self._round: list[QueueFiles] = []
        self._goal = self._reached = (0, 0)

    def start(self) -> None:
        """Start after recovery, which writes everything at once."""
        self._reached = self._appended()
        self._unwritten.recovery_ends()
        self._worker.start()

    def stop(self) -> None:
        """Write no more by itself."""
        self._worker.stop()

    def write_all(self) -> None:
        """Write everything now.  Raises `DiskFull` or `DiskFailed`."""
        self._unwritten.write()

    def retry(self) -> None:
        """Try to write again if there was no room."""
        if self._is_full:
            self._turn()

    def _appended(self) -> tuple[int, int]:
        return self._confirmation.appended_offset, self._confirmation.last_store_timestamp

    def _ask(self) -> bool:
        if self._unwritten.queues:
            self._notify(self._turn)
        return True

    def _turn(self) -> None:
        if self._confirmation.failure is not None:
            return
        if not self._round:
            self._goal, self._round = self._appended(), list(self._unwritten.queues)
        try:
            self._write_until(self._clock.monotonic() + _TURN_S)
        except DiskFull as error:
            # Everything stays readable in memory, and may not become more.
            self._round.clear()
            self._is_full = True
            self._wrote(error)
        except StoreError as error:
            self._confirmation.fail(error if isinstance(error, DiskFailed) else DiskFailed(str(error)))

    def _write_until(self, end_s: float) -> None:
        waiting = self._round
        while waiting:
            waiting.pop().write_tail()
            _WRITTEN()
            if waiting and self._clock.monotonic() >= end_s:
                self._notify(self._turn)
                return
        self._reached = self._goal
        self._is_full = False
        self._wrote(None)

    def limited(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return `checkpoint`, which was made just now, limited to what is written.  For any thread."""
        if self._unwritten.queues:
            offset, store_timestamp = self._reached
            checkpoint.confirm_phy_offset = min(checkpoint.confirm_phy_offset, offset)
            checkpoint.physic_msg_timestamp = min(checkpoint.physic_msg_timestamp, store_timestamp)
            checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, store_timestamp)
        return checkpoint
