"""State of one partition of a function, as its changelog says, and the effects that are not in the changelog yet.

Pure: `PartitionRunner` reads and writes.  After a failed commit the partition is thrown away, and loaded again.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from sprocket.functions.records import FORMAT, Commit, Content, Entry, Output

# What one input may put, delete and send, and what is gathered before a commit.  A batch has the changes twice, and
# must fit into maxMessageSize (4 MiB).
MAX_EFFECT_BYTES = 1 << 20
COMMIT_BYTES = 1 << 19
MAX_CHANGES = 1024
MAX_KEY_CHARS = 1024
_RECORD_BYTES = 256  # of a change or an output beside its content, at most


class Draft:
    """Effects of one try of a handler: nothing of them counts before `Partition.take`."""

    def __init__(self, base: Mapping[str, Entry]) -> None:
        self._base = base
        self.changes: dict[str, Entry | None] = {}
        self.outputs: list[Output] = []
        self.size_bytes = 0

    def get(self, key: str) -> Entry | None:
        """Return the entry of a key, None without one."""
        return self.changes[key] if key in self.changes else self._base.get(key)

    def put(self, entry: Entry) -> None:
        """Set an entry.  Raises ValueError above the limit of one input."""
        self._grow(4 * _key_bytes(entry.key) + len(entry.value))
        self.changes[entry.key] = entry

    def delete(self, key: str) -> None:
        """Delete a key, if it is there."""
        self._grow(4 * _key_bytes(key))
        self.changes[key] = None

    def send(self, output: Output) -> None:
        """Add an output.  Raises ValueError above the limit of one input."""
        self._grow(len(output.body))
        self.outputs.append(output)

    def _grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes + _RECORD_BYTES
        if self.size_bytes > MAX_EFFECT_BYTES or len(self.changes) >= MAX_CHANGES:
            raise ValueError(
                f"one input puts, deletes and sends at most {MAX_EFFECT_BYTES} bytes and {MAX_CHANGES} keys together"
            )


def _key_bytes(key: str) -> int:
    """Return the size of a key.  Raises ValueError for one that a changelog cannot have, or could not be read with."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS:
        raise ValueError(f"a key of the state is a str of 1 to {MAX_KEY_CHARS} characters, not {key!r:.100}")
    return len(key.encode())  # raises for what is no Unicode text


class Partition:
    """Positions, state, watermark and outputs.  `load` takes the changelog, record by record."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.positions: dict[str, int] = {}
        self.watermark_ms = 0
        self.end = 0  # of the changelog
        self.unsent: list[Output] = []  # of the last commit
        self.committed_ms = 0  # when the broker stored it
        self.committed_positions: dict[str, int] = {}
        self.commits = 0  # since the load
        self._due: list[tuple[int, str]] = []
        self._changed: set[str] = set()
        self._outputs: list[Output] = []
        self._size_bytes = 0
        self._has_progress = False
        self._records_due = 0  # of the last commit that was loaded

    # From the changelog

    def load(self, record: Content, stored_ms: int) -> None:
        """Take one record of the changelog, in order."""
        if not isinstance(record, Commit):
            self._records_due -= 1
            if isinstance(record, Entry):
                self.entries[record.key] = record
            else:
                self.entries.pop(record.key, None)
            return
        for entry in record.changes:
            self.entries[entry.key] = entry
        for key in record.deleted:
            self.entries.pop(key, None)
        self.positions = dict(record.positions)
        self.watermark_ms, self.committed_ms = record.watermark_ms, stored_ms
        self.unsent = list(record.outputs)
        self.committed_positions = self.positions.copy()
        # A batch can lose its end, as with a failover: then the next commit has these changes too.
        self._changed = {*(entry.key for entry in record.changes), *record.deleted}
        self._records_due = len(self._changed)

    def loaded(self, end: int) -> None:
        """Note that the changelog was read up to `end`."""
        self.end = end
        if self._records_due <= 0:
            self._changed.clear()
        self._due = [(entry.expires_ms, key) for key, entry in self.entries.items() if entry.expires_ms is not None]
        heapify(self._due)

    # Effects

    def begin(self, positions: Mapping[str, int]) -> None:
        """Begin to read topics that have no position yet; the next commit says where."""
        self.positions.update(positions)
        self._has_progress = self._has_progress or bool(positions)

    def draft(self) -> Draft:
        """Return a place for the effects of one try."""
        return Draft(self.entries)

    def take(self, draft: Draft) -> None:
        """Let the effects of a try count, for the next commit."""
        for key, entry in draft.changes.items():
            if entry is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = entry
                if entry.expires_ms is not None:
                    heappush(self._due, (entry.expires_ms, key))
        self._changed.update(draft.changes)
        self._outputs += draft.outputs
        self._size_bytes += draft.size_bytes

    def advance(self, topic: str, next_offset: int, time_ms: int) -> None:
        """Count the inputs of `topic` before `next_offset` as done; the watermark is the latest event time."""
        self.positions[topic] = next_offset
        self.watermark_ms = max(self.watermark_ms, time_ms)
        self._has_progress = True

    def expired(self) -> Iterator[Entry]:
        """Yield the entries whose time is over, in the order of time and key; each is to be deleted before the next."""
        while self._due and self._due[0][0] <= self.watermark_ms:
            expires_ms, key = heappop(self._due)
            entry = self.entries.get(key)
            if entry is not None and entry.expires_ms == expires_ms:
                yield entry

    # Commits

    @property
    def is_full(self) -> bool:
        """Whether to commit before the next input."""
        return self._size_bytes >= COMMIT_BYTES or len(self._changed) >= MAX_CHANGES

    @property
    def needs_commit(self) -> bool:
        """Whether anything is not in the changelog."""
        return self._has_progress or self._size_bytes > 0

    def commit(self) -> Commit:
        """Return all that is not in the changelog; `unsent` must have been sent.  Then call `committed`."""
        changes = [self.entries[key] for key in sorted(self._changed) if key in self.entries]
        deleted = [key for key in sorted(self._changed) if key not in self.entries]
        return Commit(FORMAT, dict(self.positions), self.watermark_ms, changes, deleted, self._outputs)

    def committed(self, commit: Commit, records: int, now_ms: int) -> None:
        """Note that the changelog has `commit`, as `records` records."""
        self.end += records
        self.commits += 1
        self.unsent, self.committed_ms, self.committed_positions = commit.outputs, now_ms, commit.positions
        self._changed, self._outputs, self._size_bytes, self._has_progress = set(), [], 0, False
