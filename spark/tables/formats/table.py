"""What the three formats have in common: a table that knows how far each broker's log is in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from spark.tables.formats.data_file import DataFile
from spark.tables.place import BrokerPlace, PlaceMoved, Places

# Engines leave out what begins with an underscore.
OWN_DIRECTORY: Final = "_rocketmq"


class Table(Protocol):
    """A table that exists."""

    @property
    def topic(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """Its columns, without those that only say the partition."""
        ...

    @property
    def is_partitioned(self) -> bool: ...

    @property
    def data_root(self) -> Path:
        """Where tasks write files; their paths are relative to it."""
        ...

    @property
    def root(self) -> Path:
        """What the paths of `files` are relative to."""
        ...

    def place(self, broker_name: str) -> BrokerPlace | None:
        """How far this broker's log is in the table."""
        ...

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Rows that are there read null in them."""
        ...

    def commit(self, files: Sequence[DataFile], before: Places, after: Places) -> None:
        """Add `files` and move to `after`, both or neither.

        Raises PlaceMoved if the table is no longer at `before`.
        """
        ...

    def files(self) -> list[DataFile]:
        """The files that are the table now."""
        ...

    def settle(self, attempt: str) -> None:
        """Remove files that this attempt has left without a commit; to be called by the only writer."""
        ...

    def compact(self, target_bytes: int, min_files: int) -> int:
        """Merge the small files of each hour with at least `min_files` of them; return the number of merged files."""
        ...


def check_places(table: Table, before: Places, after: Places) -> None:
    """Raises PlaceMoved if a broker of `after` is not where `before` says."""
    for name in after:
        if table.place(name) != before.get(name):
            raise PlaceMoved(f"{table.data_root}: {name} is at {table.place(name)}, not at {before.get(name)}")
