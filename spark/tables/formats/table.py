"""Protocol of the three formats: a table that keeps its place in each broker's log."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from spark.tables.formats.data_file import DataFile
from spark.tables.place import BrokerPlace, PlaceMoved, Places

# Engines ignore names that begin with an underscore.
OWN_DIRECTORY: Final = "_rocketmq"


class Table(Protocol):
    """Existing table."""

    @property
    def topic(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """Return its columns, without those of partitions."""

    @property
    def is_partitioned(self) -> bool: ...

    @property
    def data_root(self) -> Path:
        """Directory where tasks write files; their paths are relative to it."""

    @property
    def root(self) -> Path:
        """Directory that the paths of `files` are relative to."""

    def place(self, broker_name: str) -> BrokerPlace | None:
        """Return the table's place in this broker's log, None without one."""

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns; they are null in existing rows."""

    def commit(self, files: Sequence[DataFile], before: Places, after: Places) -> None:
        """Add `files` and move to `after`, both or neither.

        Raises PlaceMoved if the table is no longer at `before`.
        """

    def files(self) -> list[DataFile]:
        """Return the current files of the table."""

    def settle(self, attempt: str) -> None:
        """Remove the files of this attempt that no commit names.  Only the writer may call it."""

    def compact(self, target_bytes: int, min_files: int) -> int:
        """Merge the small files of each hour with at least `min_files` of them; return the number of merged files."""


def check_places(table: Table, before: Places, after: Places) -> None:
    """Raise PlaceMoved if the table's place for a broker of `after` is not the one in `before`."""
    for name in after:
        if table.place(name) != before.get(name):
            raise PlaceMoved(f"{table.data_root}: {name} is at {table.place(name)}, not at {before.get(name)}")
