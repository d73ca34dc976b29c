"""Damaged places of a log: their texts, and their rows with mode=PERMISSIVE."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from spark.decode.columns import column_type
from sprocket.common.errors import CorruptRecord, StoreError

logger = logging.getLogger(__name__)

ADVICE: Final = "options mode=DROPMALFORMED and mode=PERMISSIVE skip it"


@dataclass(frozen=True)
class Damage:
    """`size` bytes from physical offset `begin` on that are no readable record."""

    begin: int
    size: int
    reason: str
    path: Path

    def __str__(self) -> str:
        return f"physical offset {self.begin}, {self.size} bytes: {self.reason} ({self.path})"

    def error(self) -> CorruptRecord:
        """Return the exception for mode=FAILFAST."""
        return CorruptRecord(self.begin, f"{self.reason}, {self.size} bytes ({self.path}); {ADVICE}")


class SegmentLost(StoreError):
    """A segment of the query has expired since the query was planned."""

    @classmethod
    def of(cls, path: Path, begin: int, end: int) -> Self:
        return cls(
            f"physical offsets {begin} to {end} are lost: {path} has expired since the query was planned; load the "
            "DataFrame again, or skip them with the option failOnDataLoss=false"
        )


def damage_rows(damage: Sequence[Damage], columns: Sequence[str], corrupt_column: str) -> list[pa.Array]:
    """Return one row for each of `damage`: the text in `corrupt_column`, null in the others."""
    texts = pa.array([str(each) for each in damage], pa.string())
    return [texts if name == corrupt_column else pa.nulls(len(damage), column_type(name)) for name in columns]


def log_damage(damage: Sequence[Damage]) -> None:
    """Log the damage that was skipped."""
    if damage:
        size = sum(each.size for each in damage)
        logger.warning("event=damage_skipped places=%d bytes=%d first=%r", len(damage), size, str(damage[0]))
