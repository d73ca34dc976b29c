"""The log as a master reads it for its slaves: whole batches only, flushed or not; and what they have of it.

Source: RocketMQ 5.3.3, `DefaultMessageStore.getCommitLogData`.
"""

from collections.abc import Callable

from store.flush.confirmation import Confirmation
from store.log.commit_log import CommitLog
from store.retention.back_pressure import BackPressure


class MasterLog:
    """Lives in the owner thread of its store."""

    def __init__(self, log: CommitLog, confirmation: Confirmation, pressure: BackPressure) -> None:
        self._log = log
        self._confirmation = confirmation
        self._pressure = pressure

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
        """Consumers see what lies before it."""
        return self._confirmation.confirm_offset

    @property
    def flushed_offset(self) -> int:
        """The log is on the disk up to here."""
        return self._confirmation.flushed_offset

    def piece_at(self, offset: int, max_bytes: int) -> memoryview | None:
        """At most so many bytes from `offset` on, of one segment, without copying; None if there are none."""
        return self._log.piece_at(offset, min(max_bytes, self.end_offset - offset))

    def on_append(self, listener: Callable[[], None]) -> None:
        """Call `listener` for each batch that is appended."""
        self._confirmation.on_append = listener

    def replicated(self, limit: int | None, acknowledged: int, *, is_enough: bool, is_refusing: bool) -> None:
        """Replicas have more, or fewer of them count: see `Confirmation.replicated`.

        While `is_refusing` nothing is appended: `ReplicasNotEnough`.
        """
        self._pressure.replicas_changed(is_refusing=is_refusing)
        self._confirmation.replicated(limit, acknowledged, is_enough=is_enough)
