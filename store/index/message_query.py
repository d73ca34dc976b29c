"""Query by key: offsets from the index, then the records at them.

Source: RocketMQ 5.3.3, `DefaultMessageStore.queryMessage`.
"""

from collections.abc import Callable
from typing import Final

from sprocket.common.errors import CorruptRecord
from sprocket.common.limits import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from store.index.index_service import FoundOffsets, IndexService
from store.record.record import store_timestamp_of

# Records found may be gone.  Then the search continues before them, at most this many times.
_ROUNDS: Final = 3
# Bytes of records that one response may hold.
MAX_BYTES: Final = MAX_FRAME_BYTES - MAX_HEADER_BYTES


RecordAt = Callable[[int], memoryview | None]


def verified_record(record_at: RecordAt, physical_offset: int) -> memoryview | None:
    """Return the record that begins at `physical_offset`; None if none does or `record_at` finds it damaged."""
    if physical_offset < 0:
        return None
    try:
        return record_at(physical_offset)
    except CorruptRecord:
        # The store logged it, once for each record.
        return None


class MessageQuery:
    """One query.  While `is_open`, call `search` in any thread and `take` with its result in the store's owner thread.

    Keys are compared by hash: a record may have another key, and the client must check.
    """

    def __init__(
        self,
        index: IndexService,
        record_at: RecordAt,
        topic: str,
        key: str,
        max_messages: int,
        begin: int,
        end: int,
    ) -> None:
        self._index = index
        self._record_at = record_at
        self._topic = topic
        self._key = key
        self._max_messages = max_messages
        self._begin = begin
        self._end = end
        self._rounds = 0
        self.is_open = True
        # Oldest first.
        self.records: list[memoryview] = []
        self.last_update_timestamp = 0
        self.last_update_physical_offset = 0

    def search(self) -> FoundOffsets:
        """Return the next offsets to read."""
        return self._index.search(self._topic, self._key, self._max_messages, self._begin, self._end)

    def take(self, found: FoundOffsets) -> None:
        """Read the records at the offsets found."""
        self._rounds += 1
        if not found.offsets:
            self.is_open = False
            return
        self.last_update_timestamp = found.last_update_timestamp
        self.last_update_physical_offset = found.last_update_physical_offset
        size_bytes = 0
        for number, offset in enumerate(sorted(found.offsets)):
            record = verified_record(self._record_at, offset)
            if record is None:
                continue
            if number == 0:
                self._end = store_timestamp_of(record)
            size_bytes += len(record)
            if size_bytes > MAX_BYTES:
                break
            self.records.append(record)
        self.is_open = not self.records and self._end >= self._begin and self._rounds < _ROUNDS

    def run(self) -> list[memoryview]:
        """Return all records at once, in the owner thread."""
        while self.is_open:
            self.take(self.search())
        return self.records
