"""A master's access to the log for its slaves: reads of whole batches, flushed or not, and what slaves acknowledge.

Source: RocketMQ 5.3.3, `DefaultMessageStore.getCommitLogData`.
"""

from collections.abc import Callable

from store.flush.confirmation import Confirmation
from store.log.commit_log import CommitLog
from store.retention.back_pressure import BackPressure


class MasterLog:
    """The log of a master.  For the owner thread of its store."""

    def __init__(self, log: CommitLog, confirmation: Confirmation, pressure: BackPressure) -> None:
        self._log = log
        self._confirmation = confirmation
        self._pressure = pressure
        # Called after each appended batch.
        self.on_append: list[Callable[[], None]] = confirmation.on_append

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that is kept."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """One past the last byte of the last whole batch."""
        return self._confirmation.appended_offset

    @property
    def confirm_offset(self) -> int:
        """End of the part of the log that consumers may see."""
        return self._confirmation.confirm_offset

    @property
    def flushed_offset(self) -> int:
        """End of the part of the log that is on the disk."""
        return self._confirmation.flushed_offset

    def piece_at(self, offset: int, max_bytes: int) -> memoryview | None:
        """Return at most `max_bytes` bytes of one segment from `offset` on, without a copy; None if there are none."""
        return self._log.piece_at(offset, min(max_bytes, self.end_offset - offset))

    def replicated(self, limit: int | None, acknowledged: int, *, is_enough: bool, is_refusing: bool) -> None:
        """Report what replicas have, see `Confirmation.replicated`.

        While `is_refusing`, appends raise `ReplicasNotEnough`.
        """
        self._pressure.replicas_changed(is_refusing=is_refusing)
        self._confirmation.replicated(limit, acknowledged, is_enough=is_enough)
