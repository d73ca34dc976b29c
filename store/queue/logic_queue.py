"""Common interface of both kinds of queue, for appends, reads, flushes and recovery.

`ConsumeQueue` has one entry per message, so the index of an entry is its queue offset.  `BatchConsumeQueue` has one
unit per record, and a record may hold many messages.  Code for both kinds uses units: a unit is an index, and
`offset_of` returns its queue offset.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from store.disk.disk import DiskFile
from store.record.record import Record


class QueueType(StrEnum):
    """Values of a topic's attribute ``queue.type`` (`CQType`)."""

    SIMPLE = "SimpleCQ"
    BATCH = "BatchCQ"


# (physical offset, size, tags code) of a record.
Entry: TypeAlias = tuple[int, int, int]
# Returns the type of a topic; None for an unknown topic.
QueueTypeOf: TypeAlias = Callable[[str], QueueType | None]


def unknown_type(topic: str) -> QueueType | None:
    """Return None: a `QueueTypeOf` that knows no topic, so that the files on the disk give the type."""
    return None


class LogicQueue(Protocol):
    """One queue of a topic.  ``min_offset <= max_offset <= written_offset <= next_offset``, see `ConsumeQueue`."""

    topic: str

    # Parts that all records of the queue have in common.
    @property
    def queue_id(self) -> int: ...

    @property
    def magic(self) -> int: ...

    @property
    def topic_bytes(self) -> bytes: ...

    @property
    def record_base_bytes(self) -> int: ...

    min_offset: int
    max_offset: int
    written_offset: int
    next_offset: int
    # Messages before this existed when the store started: see `store.queue.cold_reads`.
    cold_end: int
    # Fields of assigned but unwritten units.
    pending: list[int]

    @property
    def has_pending(self) -> bool:
        """Whether `pending` has units; asked of all queues."""

    @property
    def is_batch(self) -> bool:
        """Whether units may hold several messages."""

    @property
    def is_plain(self) -> bool:
        """Whether `add` only takes one offset and appends three numbers to `pending`."""

    @property
    def is_schedule(self) -> bool:
        """Whether the tags code is the time at which a message is due."""

    @property
    def directory(self) -> Path: ...

    @property
    def reported_min_offset(self) -> int:
        """`min_offset` as RocketMQ responds."""

    @property
    def first_offset(self) -> int:
        """First offset with a file."""

    @property
    def first_unit(self) -> int:
        """First unit with a file."""

    @property
    def capacity_unit(self) -> int:
        """One past the last unit with a file."""

    # Life

    def load(self) -> None:
        """Open the files.  Raises `StoreError` if they are not a sequence of files of the configured size."""

    def load_listed(self, first: int, end: int) -> bool:
        """Take the file of the units from `first` to before `end`, without a look at the directory.

        Return False if these units are not exactly in one file; then nothing is open.  Raises `DiskFailed`.
        """

    def destroy(self) -> None:
        """Remove all files; then the queue is empty and begins at 0."""

    def close(self) -> None: ...

    # Writing

    def add(self, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int) -> None:
        """Assign the next `count` offsets to a record, and add its unit to `pending`."""

    def write_pending(self) -> None:
        """Write the pending units.  Raises `DiskFull` or `DiskFailed`; then they are still pending."""

    def roll_back(self, offset: int) -> None:
        """Remove the units from `offset` on, because their batch failed."""

    def put(
        self, offset: int, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int
    ) -> None:
        """Write the unit of a record at `offset`, in recovery.  It becomes the last: units from `offset` on go."""

    def set_range(self, start: int, end: int, *, cut: bool) -> None:
        """Set the range of valid units to `start` to before `end`, in recovery; with `cut`, zero all after it."""

    def drop_before(self, unit: int) -> list[DiskFile]:
        """Drop the files with units before `unit` only, and return them, open: the caller removes them.

        The last file stays, because it shows where the queue continues.  Files that a flush may be syncing stay too.
        """

    # Flushing

    def unflushed_bytes(self) -> int: ...

    def files_to_flush(self) -> tuple[list[DiskFile], int]: ...

    def flushed(self, offset: int) -> None: ...

    # Reading

    def unit(self, unit: int) -> Entry | None:
        """Return (physical_offset, size, tags_code) of a unit, blank or not; None if no file has it."""

    def border_units(self, start: int, end: int) -> tuple[Entry | None, Entry | None, Entry | None]:
        """Return the units `start`, ``end - 1`` and `end`, each as `unit` does.  For recovery, before any write."""

    def offset_of(self, unit: int) -> int:
        """Return the first queue offset of a unit; one past the last message for the end of `visible_units`."""

    def visible_units(self) -> tuple[int, int]:
        """Return the first readable unit, and one past the last."""

    def agrees(self, unit: int, record: Record) -> bool:
        """Return whether unit and record agree on the record's offset in the queue."""

    def entry(self, offset: int) -> Entry | None:
        """Return (physical_offset, size, tags_code) of the record with the message at `offset`; None if none has it."""

    def entries(self, offset: int, count: int) -> npt.NDArray[np.void]:
        """Return the units with messages of ``[offset, offset + count)``, as far as in one file, without a copy."""
