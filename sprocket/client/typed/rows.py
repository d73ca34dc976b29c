"""Rows of a table: the last message of each key.  Pure."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
# Broker name and id of a queue.
QueueKey = tuple[str, int]


class Row(NamedTuple, Generic[T]):
    """A value, and the place of its message: queue, offset, and store time in ms."""

    value: T
    queue: QueueKey
    offset: int
    stored_ms: int


class Rows(Generic[T]):
    """Last value of each key, from the messages of several queues, each read in order.

    Messages of one key usually lie in one queue.  If they do not, because queues were added, the latest store time
    decides.  Deletions are remembered only until `loaded`, because queues are read side by side until then.
    `changed` gets each key whose value changed.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.by_key: dict[str, Row[T]] = {}
        self._changed = changed
        self._deleted: dict[str, Row[None]] | None = {}

    def put(self, key: str, row: Row[T]) -> None:
        """Take a message with a value."""
        if not self._is_older(key, row):
            self.by_key[key] = row
            if self._deleted:
                self._deleted.pop(key, None)
            self._changed(key)

    def delete(self, key: str, row: Row[None]) -> None:
        """Take a message that deletes a key."""
        if self._is_older(key, row):
            return
        if self._deleted is not None:
            self._deleted[key] = row
        if self.by_key.pop(key, None) is not None:
            self._changed(key)

    def _is_older(self, key: str, row: Row[T] | Row[None]) -> bool:
        """Return whether a later message of the key is known, from another queue."""
        known: Row[T] | Row[None] | None = self.by_key.get(key)
        if known is None and self._deleted:
            known = self._deleted.get(key)
        return known is not None and known.queue != row.queue and known.stored_ms > row.stored_ms

    def loaded(self) -> None:
        """Note that all queues have been read up to where they ended at the start."""
        self._deleted = None

    def forget(self, queue: QueueKey) -> None:
        """Remove what came from a queue, which is read again from its beginning."""
        for key in [key for key, row in self.by_key.items() if row.queue == queue]:
            del self.by_key[key]
            self._changed(key)
