"""Removal of queues from a running store: those of a deleted topic, and those whose messages have all expired.

A file of its own, because it joins table, notes, cleaner and confirmation, which do not know each other.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.failpoints import failpoint
from store.flush.confirmation import Confirmation
from store.flush.queue_list import QueueKey
from store.log.commit_log import CommitLog
from store.queue.consume_queue_table import ConsumeQueueTable
from store.queue.logic_queue import LogicQueue
from store.recovery.bookkeeping import Bookkeeping
from store.retention.cleaner import Cleaner

_TOPIC_DELETED: Final = failpoint("message_store.topic_deleted")

T = TypeVar("T")


class Removal(Generic[T]):
    """One removal.  It is noted durably first, which may take long; only `note` may run in another thread.

    Call `note` while `must_note` returns True, then at once `finish`.
    """

    def __init__(
        self,
        confirmation: Confirmation,
        look: Callable[[], T],
        note: Callable[[T], None],
        remove: Callable[[T], int],
    ) -> None:
        self._confirmation = confirmation
        self._look = look
        self._note = note
        self._remove = remove
        self._found = look()
        self._noted: T | None = None
        self._error: StoreError | None = None

    def must_note(self) -> bool:
        """Return whether the queues to remove are not noted as they are now.

        Raises the `DiskFull` or `DiskFailed` of `note`.
        """
        if self._error is not None:
            if isinstance(self._error, DiskFailed):
                self._confirmation.fail(self._error)
            raise self._error
        self._found = self._look()
        return bool(self._found) and self._found != self._noted and self._confirmation.failure is None

    def note(self) -> None:
        """Write the note; `must_note` tells if that failed."""
        found = self._found
        try:
            self._note(found)
            self._noted = found
        except StoreError as error:
            self._error = error

    def finish(self) -> int:
        """Remove the queues; return how many."""
        try:
            return self._remove(self._found)
        except DiskFailed as error:
            self._confirmation.fail(error)
            raise

    def run(self) -> int:
        """Do all steps in this thread; return how many queues were removed."""
        while self.must_note():
            self.note()
        return self.finish()


class LightRemoval:
    """Removal of light queues, which may be many: one note for all, and then one after the other.

    Call `note` once, in any thread, and then `remove` for each.
    """

    def __init__(
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        books: Bookkeeping,
        cleaner: Cleaner,
        confirmation: Confirmation,
        names: Sequence[str],
    ) -> None:
        self._table = table
        self._books = books
        self._cleaner = cleaner
        self._confirmation = confirmation
        self._end = log.wrote_offset
        self._ends = {name: self._next_offset(name) for name in names}
        self._error: StoreError | None = None

    def _next_offset(self, name: str) -> int | None:
        return next((queue.next_offset for queue in self._table.of_topic(name)), None)

    def note(self) -> None:
        """Write the note; `remove` tells if that failed."""
        try:
            self._books.topics_deleted(list(self._ends), self._end)
        except StoreError as error:
            self._error = error

    def remove(self, name: str) -> bool:
        """Remove a queue; return False if it has got a message since the note, and stays.

        Recovery may then leave out its older messages.  Raises `DiskFull` or `DiskFailed`.
        """
        try:
            if self._error is not None:
                raise self._error
            if self._next_offset(name) != self._ends[name]:
                return False
            self._cleaner.forget(name)
            self._table.delete_topic(name)
        except DiskFailed as error:
            self._confirmation.fail(error)
            raise
        return True


class QueueRemoval:
    """Removals of one store.  It belongs to the owner thread."""

    def __init__(
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        books: Bookkeeping,
        cleaner: Cleaner,
        confirmation: Confirmation,
    ) -> None:
        self._log = log
        self._table = table
        self._books = books
        self._cleaner = cleaner
        self._confirmation = confirmation
        # Called with the name of a topic after its queues were removed.
        self.on_topic_removed: list[Callable[[str], None]] = []

    def of_topic(self, topic: str) -> "Removal[dict[QueueKey, int]]":
        """Return the removal of all queues of `topic`."""
        end = 0

        def look() -> dict[QueueKey, int]:
            nonlocal end
            # A message that arrives while the note is written needs another note.
            end = self._log.wrote_offset
            return {(queue.topic, queue.queue_id): queue.next_offset for queue in self._table.of_topic(topic)}

        def note(_: dict[QueueKey, int]) -> None:
            self._books.topics_deleted((topic,), end)

        def remove(_: dict[QueueKey, int]) -> int:
            self._cleaner.forget(topic)
            removed = self._table.delete_topic(topic)
            _TOPIC_DELETED()
            for listener in self.on_topic_removed:
                listener(topic)
            return removed

        return Removal(self._confirmation, look, note, remove)

    def of_light(self, names: Sequence[str]) -> "LightRemoval":
        """Return the removal of light queues."""
        return LightRemoval(self._log, self._table, self._books, self._cleaner, self._confirmation, names)

    def of_expired(self, is_kept: Callable[[str], bool]) -> "Removal[dict[QueueKey, LogicQueue]]":
        """Return the removal of queues whose messages have expired, except topics for which `is_kept` is true."""

        def look() -> dict[QueueKey, LogicQueue]:
            return {(queue.topic, queue.queue_id): queue for queue in self._cleaner.expired_queues(is_kept)}

        def note(expired: dict[QueueKey, LogicQueue]) -> None:
            self._books.queues_deleted(set(expired))

        def remove(expired: dict[QueueKey, LogicQueue]) -> int:
            for key in expired:
                self._cleaner.forget(*key)
                self._table.delete_queue(*key)
            return len(expired)

        return Removal(self._confirmation, look, note, remove)
