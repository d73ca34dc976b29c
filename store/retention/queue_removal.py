"""Removal of queues from a running store: those of a deleted topic, and those whose messages have all expired.

A file of its own, because it joins table, notes, cleaner and confirmation, which do not know each other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sprocket.common.errors import DiskFailed
from sprocket.common.failpoints import failpoint
from store.flush.confirmation import Confirmation
from store.queue.consume_queue_table import ConsumeQueueTable
from store.recovery.bookkeeping import Bookkeeping
from store.retention.cleaner import Cleaner

_TOPIC_DELETED: Final = failpoint("message_store.topic_deleted")


class QueueRemoval:
    """Removal of queues of one store.  It belongs to the owner thread.  Each removal is noted durably first."""

    def __init__(
        self, table: ConsumeQueueTable, books: Bookkeeping, cleaner: Cleaner, confirmation: Confirmation
    ) -> None:
        self._table = table
        self._books = books
        self._cleaner = cleaner
        self._confirmation = confirmation

    def delete_topic(self, topic: str) -> int:
        """Remove the ConsumeQueues of `topic`; return how many there were.  Raises `DiskFull` or `DiskFailed`."""
        with self._latched():
            if self._confirmation.failure is None:
                self._books.topic_deleted(topic)
            self._cleaner.forget(topic)
            removed = self._table.delete_topic(topic)
        _TOPIC_DELETED()
        return removed

    def delete_expired_queues(self, is_kept: Callable[[str], bool]) -> int:
        """Remove queues whose messages have expired, except topics for which `is_kept` is true.  Return how many."""
        expired = self._cleaner.expired_queues(is_kept)
        with self._latched():
            if expired and self._confirmation.failure is None:
                self._books.queues_deleted({(queue.topic, queue.queue_id) for queue in expired})
            for queue in expired:
                self._cleaner.forget(queue.topic, queue.queue_id)
                self._table.delete_queue(queue.topic, queue.queue_id)
        return len(expired)

    @contextmanager
    def _latched(self) -> Iterator[None]:
        """Latch a disk failure that the body raises, and let it through."""
        try:
            yield
        except DiskFailed as error:
            self._confirmation.fail(error)
            raise
