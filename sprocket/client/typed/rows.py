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
    decides, and `queues_of` says which queues have a value.  Deletions are remembered only until `loaded`, because
    queues are read side by side until then.  `changed` gets each key whose value changed.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self.by_key: dict[str, Row[T]] = {}
        self._changed = changed
        self._deleted: dict[str, Row[None]] | None = {}
        # Of keys that moved: the queues whose last message of the key is a value that does not count any more.
        self._outdated: dict[str, set[QueueKey]] = {}

    def put(self, key: str, row: Row[T]) -> None:
        """Take a message with a value."""
        if self._is_older(key, row):
            self._outdated.setdefault(key, set()).add(row.queue)
        else:
            self._supersede(key, row.queue)
            self.by_key[key] = row
            if self._deleted:
                self._deleted.pop(key, None)
            self._changed(key)

    def delete(self, key: str, row: Row[None]) -> None:
        """Take a message that deletes a key."""
        if self._is_older(key, row):
            self._forget_outdated(key, row.queue)
            return
        self._supersede(key, row.queue)
        if self._deleted is not None:
            self._deleted[key] = row
        if self.by_key.pop(key, None) is not None:
            self._changed(key)

    def queues_of(self, key: str) -> set[QueueKey]:
        """Return the queues whose last message of `key` is a value, whether it counts or not."""
        found = set(self._outdated.get(key, ()))
        return found | {self.by_key[key].queue} if key in self.by_key else found

    def _supersede(self, key: str, queue: QueueKey) -> None:
        """Note that the key's last message is now in `queue`."""
        known = self.by_key.get(key)
        if known is not None and known.queue != queue:
            self._outdated.setdefault(key, set()).add(known.queue)
        self._forget_outdated(key, queue)

    def _forget_outdated(self, key: str, queue: QueueKey) -> None:
        outdated = self._outdated.get(key)
        if outdated is not None:
            outdated.discard(queue)
            if not outdated:
                del self._outdated[key]

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
        for key in list(self._outdated):
            self._forget_outdated(key, queue)
