"""Open a table of any format, and lock it against other writers."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from spark.tables.declaration import TableFormat
from spark.tables.formats.table import OWN_DIRECTORY, Table
from sprocket.common.errors import ConfigError


def open_table(
    kind: TableFormat,
    directory: Path,
    topic: str,
    schema: pa.Schema,
    *,
    is_partitioned: bool = True,
    catalog: Sequence[tuple[str, str]] = (),
    identifier: str = "",
) -> Table:
    """Open the table at `directory`, or create it with `schema`.

    Raises ConfigError if another topic's table, another format or other files are there, or if a package is missing.
    """
    _check_place(kind, directory)
    table = _open(kind, directory, topic, schema, is_partitioned, catalog, identifier)
    if table.topic != topic:
        raise ConfigError(f"{directory} is the table of topic {table.topic}, not of {topic}")
    return table


def existing_table(directory: Path, catalog: Sequence[tuple[str, str]] = (), identifier: str = "") -> Table:
    """Open the table at `directory`, of any topic and format.  Raises ConfigError if there is none."""
    kind = format_at(directory)
    if kind is None:
        raise ConfigError(f"{directory} is no table that sprocket spark backfill has made")
    if kind is TableFormat.ICEBERG and not identifier:
        from spark.tables.formats.iceberg_table import only_identifier

        identifier = only_identifier(directory, catalog)
    return _open(kind, directory, "", pa.schema([]), False, catalog, identifier)


def _open(
    kind: TableFormat,
    directory: Path,
    topic: str,
    schema: pa.Schema,
    is_partitioned: bool,
    catalog: Sequence[tuple[str, str]],
    identifier: str,
) -> Table:
    # Each brings packages of its own.
    if kind is TableFormat.DELTA:
        from spark.tables.formats.delta_table import open_delta

        return open_delta(directory, topic, schema, is_partitioned)
    if kind is TableFormat.ICEBERG:
        from spark.tables.formats.iceberg_table import open_iceberg

        return open_iceberg(directory, topic, schema, is_partitioned, catalog, identifier)
    from spark.tables.formats.parquet_table import open_parquet

    return open_parquet(directory, topic, schema, is_partitioned)


def format_at(directory: Path) -> TableFormat | None:
    """Return the format of the table at `directory`, None if there is none."""
    if (directory / "_delta_log").is_dir():
        return TableFormat.DELTA
    if (directory / "metadata").is_dir():
        return TableFormat.ICEBERG
    if (directory / OWN_DIRECTORY / "manifest.json").exists():
        return TableFormat.PARQUET
    return None


def _check_place(kind: TableFormat, directory: Path) -> None:
    found = format_at(directory)
    if found not in (None, kind):
        raise ConfigError(f"{directory} is a table of format {found}, not {kind}")
    if found is None and directory.is_dir():
        # What a kill may have left of the making of a table: SQLite has files beside its own.
        ours = (OWN_DIRECTORY, "data")
        others = [
            each.name
            for each in directory.iterdir()
            if each.name not in ours and not each.name.startswith("catalog.db")
        ]
        if others:
            raise ConfigError(f"{directory} is no table, and there is {min(others)} in it; give an empty place")


@contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Lock the table against other processes of this machine.  Raises ConfigError if one writes to it."""
    own = directory / OWN_DIRECTORY
    own.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(own / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"another process writes to the table at {directory}; one at a time does") from None
        yield
    finally:
        os.close(descriptor)
