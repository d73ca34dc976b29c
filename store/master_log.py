"""The log as a master reads it for its slaves: whole batches only, flushed or not.

Source: RocketMQ 5.3.3, `DefaultMessageStore.getCommitLogData`.
"""

from collections.abc import Callable

from store.commit_log import CommitLog
from store.confirmation import Confirmation


class MasterLog:
    """Lives in the owner thread of its store."""

    def __init__(self, log: CommitLog, confirmation: Confirmation) -> None:
        self._log = log
        self._confirmation = confirmation

    @property
    def min_offset(self) -> int:
        """Offset of the first byte that is kept."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """One past the last byte of the last whole batch."""
        return self._confirmation.appended_offset

    def piece_at(self, offset: int, most_bytes: int) -> memoryview | None:
        """At most so many bytes from `offset` on, of one segment, without copying; None if there are none."""
        return self._log.piece_at(offset, min(most_bytes, self.end_offset - offset))

    def on_append(self, listener: Callable[[], None]) -> None:
        """Call `listener` for each batch that is appended."""
        self._confirmation.on_append = listener
