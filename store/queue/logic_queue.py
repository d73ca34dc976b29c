"""What log, reader, flush and recovery see of a queue, whichever of the two kinds it is.

`ConsumeQueue` has one entry per message, so the index of an entry is its queue offset.  `BatchConsumeQueue` has one
unit per record, which may hold many messages.  What works on both goes by unit: an index, of which `offset_of` says
the queue offset.
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
    """What a topic's attribute ``queue.type`` may say (`CQType`)."""

    SIMPLE = "SimpleCQ"
    BATCH = "BatchCQ"


# The type that a topic was given; None for a topic that nobody knows.
QueueTypeOf: TypeAlias = Callable[[str], QueueType | None]


def unknown_type(topic: str) -> QueueType | None:
    """A `QueueTypeOf` that knows no topic: what lies on the disk says the type."""
    return None


class LogicQueue(Protocol):
    """One queue of a topic.  ``min_offset <= max_offset <= written_offset <= next_offset``, see `ConsumeQueue`."""

    topic: str
    queue_id: int
    # What every record of the queue has in common, ready made.
    magic: int
    topic_bytes: bytes
    record_base_bytes: int
    min_offset: int
    max_offset: int
    written_offset: int
    next_offset: int
    # Messages before it were there when the store started: see `store.queue.cold_reads`.
    cold_end: int
    # Fields of units that are assigned and not yet written.
    pending: list[int]

    @property
    def is_batch(self) -> bool:
        """Whether units may hold several messages."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether `add` does no more than take one offset and put three numbers into `pending`."""
        ...

    @property
    def is_schedule(self) -> bool:
        """Whether the tags code is the time at which a message is due."""
        ...

    @property
    def directory(self) -> Path: ...

    @property
    def reported_min_offset(self) -> int:
        """`min_offset` as RocketMQ answers it."""
        ...

    @property
    def first_offset(self) -> int:
        """Offset before which there is no file."""
        ...

    @property
    def first_unit(self) -> int:
        """The first unit for which there is a file."""
        ...

    @property
    def capacity_unit(self) -> int:
        """One past the last unit for which there is a file."""
        ...

    # Life

    def load(self) -> None:
        """Open the files.  Raises `StoreError` if they are no sequence of files of the configured size."""
        ...

    def destroy(self) -> None:
        """Remove all files; the queue is then empty and begins at 0."""
        ...

    def close(self) -> None: ...

    # Writing

    def add(self, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int) -> None:
        """Assign the next `count` offsets to a record, and hold its unit in `pending`."""
        ...

    def write_pending(self) -> None:
        """Write the pending units.  Raises `DiskFull` or `DiskFailed`; they are then still pending."""
        ...

    def roll_back(self, offset: int) -> None:
        """Let the offsets from `offset` on be assigned anew: their batch failed."""
        ...

    def put(
        self, offset: int, physical_offset: int, size_bytes: int, tags_code: int, store_timestamp: int, count: int
    ) -> None:
        """Recovery: write the unit of a record at `offset`, the newest.  What is at or behind `offset` goes."""
        ...

    def set_range(self, start: int, end: int, *, cut: bool) -> None:
        """Recovery: units from `start` to before `end` are good; with `cut`, zero what is behind."""
        ...

    def drop_before(self, unit: int) -> list[DiskFile]:
        """Let go of the files with units before `unit` only; return them for whoever removes them.

        The last file stays: it says where the queue goes on.  So do those that a flush may be working on.
        """
        ...

    # Flushing

    def unflushed_bytes(self) -> int: ...

    def files_to_flush(self) -> tuple[list[DiskFile], int]: ...

    def flushed(self, offset: int) -> None: ...

    # Reading

    def unit(self, unit: int) -> tuple[int, int, int] | None:
        """(physical_offset, size, tags_code) of a unit, whatever it holds; None if no file has it."""
        ...

    def offset_of(self, unit: int) -> int:
        """Queue offset at which the unit begins; that behind the last one for the end of `visible_units`."""
        ...

    def visible_units(self) -> tuple[int, int]:
        """The first unit that may be read, and one past the last."""
        ...

    def agrees(self, unit: int, record: Record) -> bool:
        """Whether what the unit says about a record's place in the queue is what the record says."""
        ...

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """(physical_offset, size, tags_code) of the record that holds the message at `offset`."""
        ...

    def entries(self, offset: int, count: int) -> npt.NDArray[np.void]:
        """The units with messages of ``[offset, offset + count)``, as far as they lie in one file.  No copy."""
        ...
