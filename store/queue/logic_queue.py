"""Common interface of both kinds of queue, for appends, reads, flushes and recovery.

`ConsumeQueue` has one entry per message, so the index of an entry is its queue offset.  `BatchConsumeQueue` has one
unit per record, and a record may hold many messages.  Code for both kinds uses units: a unit is an index, and
`offset_of` returns its queue offset.
"""

from abc import abstractmethod
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import RECORD_BASE_BYTES
from store.disk.disk import Disk, DiskFile
from store.disk.mapped_file_queue import MappedFileQueue
from store.record.record import Record, topic_field


class QueueType(StrEnum):
    """Values of a topic's attribute ``queue.type`` (`CQType`)."""

    SIMPLE = "SimpleCQ"
    BATCH = "BatchCQ"


# The classes of queues have slots of their own for the same attributes.
NO_SLOTS: Final[tuple[str, ...]] = ()
# (physical offset, size, tags code) of a record.
Entry: TypeAlias = tuple[int, int, int]
# Returns the type of a topic; None for an unknown topic.
QueueTypeOf: TypeAlias = Callable[[str], QueueType | None]


def unknown_type(topic: str) -> QueueType | None:
    """Return None: a `QueueTypeOf` that knows no topic, so that the files on the disk give the type."""
    return None


class LogicQueue:
    """One queue of a topic: a base class of both kinds.

    ``min_offset <= max_offset <= written_offset <= next_offset``: the first readable message, then the ends of the
    confirmed messages, of the units in the files, and of the assigned offsets.
    """

    __slots__ = NO_SLOTS
    unit_bytes: int
    # Whether units may hold several messages.
    is_batch: bool
    # Whether `add` only takes one offset and appends three numbers to `pending`.
    is_plain: bool
    # Whether the tags code is the time at which a message is due.
    is_schedule: bool
    topic: str
    # Parts that all records of the queue have in common.
    queue_id: int
    magic: int
    topic_bytes: bytes
    record_base_bytes: int
    min_offset: int
    max_offset: int
    written_offset: int
    next_offset: int
    # Messages before this existed when the store started: see `store.queue.cold_reads`.
    cold_end: int
    # Fields of assigned but unwritten units.
    pending: list[int]
    _files: MappedFileQueue
    # One past the last unit on the disk.
    _synced_unit: int

    def __init__(self, disk: Disk, directory: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.magic, self.topic_bytes = topic_field(topic)
        self.record_base_bytes = RECORD_BASE_BYTES + len(self.topic_bytes)
        self._files = MappedFileQueue(disk, directory.joinpath(topic, str(queue_id)), file_bytes, preallocate=False)
        self.pending = []

    @property
    def has_pending(self) -> bool:
        """Whether `pending` has units; asked of all queues."""
        return bool(self.pending)

    @property
    def directory(self) -> Path:
        return self._files.directory

    @property
    @abstractmethod
    def _end_unit(self) -> int:
        """One past the last unit in the files."""

    @property
    @abstractmethod
    def reported_min_offset(self) -> int:
        """`min_offset` as RocketMQ responds."""

    @property
    @abstractmethod
    def first_offset(self) -> int:
        """First offset with a file."""

    @property
    @abstractmethod
    def first_unit(self) -> int:
        """First unit with a file."""

    @property
    @abstractmethod
    def capacity_unit(self) -> int:
        """One past the last unit with a file."""

    # Life

    @abstractmethod
    def load(self) -> None:
        """Open the files.  Raises `StoreError` if they are not a sequence of files of the configured size."""

    @abstractmethod
    def load_listed(self, first: int, end: int) -> bool:
        """Take the file of the units from `first` to before `end`, without a look at the directory.

        Return False if these units are not exactly in one file; then nothing is open.  Raises `DiskFailed`.
        """

    @abstractmethod
    def destroy(self) -> None:
        """Remove all files; then the queue is empty and begins at 0."""

    def close(self) -> None:
        self._files.close()

    # Writing

    @abstractmethod
    def add(self, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int) -> None:
        """Assign the next `count` offsets to a record, and add its unit to `pending`."""

    @abstractmethod
    def write_pending(self) -> None:
        """Write the pending units.  Raises `DiskFull` or `DiskFailed`; then they are still pending."""

    @abstractmethod
    def roll_back(self, offset: int) -> None:
        """Remove the units from `offset` on, because their batch failed."""

    @abstractmethod
    def put(
        self, offset: int, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int
    ) -> None:
        """Write the unit of a record at `offset`, in recovery.  It becomes the last: units from `offset` on go."""

    @abstractmethod
    def set_range(self, start: int, end: int, *, cut: bool) -> None:
        """Set the range of valid units to `start` to before `end`, in recovery; with `cut`, zero all after it."""

    def drop_before(self, unit: int) -> list[DiskFile]:
        """Drop the files with units before `unit` only, and return them, open: the caller removes them.

        The last file stays, because it shows where the queue continues.  Files that a flush may be syncing stay too.
        """
        return self._files.drop_before(min(unit, self._synced_unit) * self.unit_bytes)

    # Flushing

    def unflushed_bytes(self) -> int:
        """Return the bytes of unsynced units."""
        return (self._end_unit - self._synced_unit) * self.unit_bytes

    def files_to_flush(self) -> tuple[list[DiskFile], int]:
        """Return the files with unflushed units, and the unit to pass to `flushed` after their sync."""
        end = self._end_unit
        if end == self._synced_unit:
            return [], end
        return self._files.between(self._synced_unit * self.unit_bytes, end * self.unit_bytes), end

    def flushed(self, unit: int) -> None:
        """Note that the units before `unit` are on the disk."""
        self._synced_unit = max(self._synced_unit, min(unit, self._end_unit))

    # Reading

    @abstractmethod
    def unit(self, unit: int) -> Entry | None:
        """Return (physical_offset, size, tags_code) of a unit, blank or not; None if no file has it."""

    @abstractmethod
    def border_units(self, start: int, end: int) -> tuple[Entry | None, Entry | None, Entry | None]:
        """Return the units `start`, ``end - 1`` and `end`, each as `unit` does.  For recovery, before any write."""

    @abstractmethod
    def offset_of(self, unit: int) -> int:
        """Return the first queue offset of a unit; one past the last message for the end of `visible_units`."""

    @abstractmethod
    def visible_units(self) -> tuple[int, int]:
        """Return the first readable unit, and one past the last."""

    @abstractmethod
    def agrees(self, unit: int, record: Record) -> bool:
        """Return whether unit and record agree on the record's offset in the queue."""

    @abstractmethod
    def entry(self, offset: int) -> Entry | None:
        """Return (physical_offset, size, tags_code) of the record with the message at `offset`; None if none has it."""

    @abstractmethod
    def entries(self, offset: int, count: int) -> npt.NDArray[np.void]:
        """Return the units with messages of ``[offset, offset + count)``, as far as in one file, without a copy."""
