"""Places of a log that cannot be read: what is said of them, and the rows that PERMISSIVE makes of them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from spark.decode.columns import column_type
from sprocket.common.errors import CorruptRecord, StoreError

logger = logging.getLogger(__name__)

ADVICE: Final = "options mode=DROPMALFORMED and mode=PERMISSIVE read on"


@dataclass(frozen=True)
class Damage:
    """`size` bytes from physical offset `begin` on, which are no record that can be read."""

    begin: int
    size: int
    reason: str
    path: Path

    def __str__(self) -> str:
        return f"physical offset {self.begin}, {self.size} bytes: {self.reason} ({self.path})"

    def error(self) -> CorruptRecord:
        """What FAILFAST raises."""
        return CorruptRecord(self.begin, f"{self.reason}, {self.size} bytes ({self.path}); {ADVICE}")


class SegmentLost(StoreError):
    """A segment that was to be read has expired since the query was planned."""

    @classmethod
    def of(cls, path: Path, begin: int, end: int) -> Self:
        return cls(
            f"physical offsets {begin} to {end} are lost: {path} has expired since the query was planned; load the "
            "DataFrame again, or go on without them by the option failOnDataLoss=false"
        )


def damage_rows(damage: Sequence[Damage], columns: Sequence[str], corrupt_column: str) -> list[pa.Array]:
    """One row for each of `damage`: all null but the text in `corrupt_column`."""
    texts = pa.array([str(each) for each in damage], pa.string())
    return [texts if name == corrupt_column else pa.nulls(len(damage), column_type(name)) for name in columns]


def log_damage(damage: Sequence[Damage]) -> None:
    """Say what was passed over."""
    if damage:
        size = sum(each.size for each in damage)
        logger.warning("event=damage_passed_over places=%d bytes=%d first=%r", len(damage), size, str(damage[0]))
