"""Iceberg table: the place in each broker's log is a property, changed by the commit that adds the files.

It is also in the summary of that snapshot, for people; properties stay when snapshots expire.  The commit names the
snapshot that it follows, so of two writers at the same place only one commits.  Partitions are hours of the store
timestamp (a transform: a query by `storeTimestamp` is pruned by itself).
Source: Apache Iceberg table specification, version 2; pyiceberg 0.12.
"""

import hashlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spark.tables.formats.compaction import merges, write_merged
from spark.tables.formats.data_file import DataFile, leftovers
from spark.tables.formats.table import check_places
from spark.tables.optional_package import optional_package
from spark.tables.place import BrokerPlace, PlaceMoved, Places, as_json, from_json
from spark.tables.write_trouble import trouble
from sprocket.common.errors import ConfigError, StoreError

_TOPIC: Final = "rocketmq.topic"
_PLACES: Final = "rocketmq.places"
_RETRIES: Final = "commit.retry.num-retries"
_CATALOG: Final = "rocketmq"
_FILE: Final = "file://"
# Frequent commits must not let the table's metadata grow without limit.
_PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # A body that is no column of values: files carry no statistics of it.
    "write.metadata.metrics.column.body": "none",
}


def open_iceberg(
    directory: Path,
    topic: str,
    schema: pa.Schema,
    is_partitioned: bool,
    catalog_properties: Sequence[tuple[str, str]] = (),
    identifier: str = "",
) -> "IcebergTable":
    """Open the table of this name in the catalogue, or create it at `directory`.

    Without properties the catalogue is ``catalog.db`` (SQLite) in `directory`.  Raises ConfigError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    catalog = open_catalog(directory, catalog_properties)
    name = tuple((identifier or default_identifier(topic)).split("."))
    errors = optional_package("pyiceberg.exceptions", "a table of format iceberg")
    try:
        catalog.create_namespace_if_not_exists(name[:-1])
        if not catalog.table_exists(name):
            if not schema.names:
                raise ConfigError(f"the catalogue has no table {'.'.join(name)}")
            others = [] if catalog_properties else _names(catalog)
            if others:
                raise ConfigError(f"{directory} is the table {others[0]}, not {'.'.join(name)} of topic {topic}")
            _create(catalog, name, directory, topic, schema, is_partitioned)
        table = catalog.load_table(name)
    except (errors.NoSuchNamespaceError, errors.TableAlreadyExistsError, ValueError, OSError) as error:
        raise ConfigError(f"Iceberg table {'.'.join(name)}: {error}") from error
    except _sql_errors() as error:
        raise _of_sql(error, directory) from error
    if table.location().removeprefix(_FILE) != str(directory.absolute()):
        raise ConfigError(f"Iceberg table {'.'.join(name)} lies at {table.location()}, not at {directory.absolute()}")
    return IcebergTable(table, directory)


def open_catalog(directory: Path, properties: Sequence[tuple[str, str]] = ()) -> Any:
    """The catalogue with these properties, or the one in `directory`."""
    package = optional_package("pyiceberg.catalog", "a table of format iceberg")
    given = dict(properties) or {
        "type": "sql",
        "uri": f"sqlite:///{directory.absolute()}/catalog.db",
        "warehouse": f"{_FILE}{directory.absolute()}",
    }
    try:
        return package.load_catalog(given.pop("name", _CATALOG), **given)
    except _sql_errors() as error:
        raise _of_sql(error, directory) from error


def _sql_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a catalogue in a database."""
    try:
        package = import_module("sqlalchemy.exc")
    except ModuleNotFoundError:  # nor can there be such a catalogue
        return ()
    return (package.SQLAlchemyError,)


def _of_sql(error: Exception, directory: Path) -> StoreError:
    """Return the database's error, without the statement."""
    return StoreError(trouble(getattr(error, "orig", None) or error, directory))


def only_identifier(directory: Path, properties: Sequence[tuple[str, str]]) -> str:
    """Return the only table that the catalogue has at `directory`.  Raises ConfigError if there is none or several."""
    catalog = open_catalog(directory, properties)
    names = _names(catalog)
    if len(names) != 1:
        raise ConfigError(f"{directory}: the catalogue has the tables {', '.join(names) or 'none'}; say which one")
    return names[0]


def _names(catalog: Any) -> list[str]:
    return [".".join(name) for space in catalog.list_namespaces() for name in catalog.list_tables(space)]


def default_identifier(topic: str) -> str:
    """Namespace and table of a topic."""
    return f"{_CATALOG}.{topic}"


def _create(
    catalog: Any, name: tuple[str, ...], directory: Path, topic: str, schema: pa.Schema, is_partitioned: bool
) -> None:
    transforms = optional_package("pyiceberg.transforms", "a table of format iceberg")
    properties = {**_PROPERTIES, _TOPIC: topic}
    transaction = catalog.create_table_transaction(
        name, schema, location=f"{_FILE}{directory.absolute()}", properties=properties
    )
    with transaction as creating:
        if is_partitioned:
            with creating.update_spec() as update:
                update.add_field("storeTimestamp", transforms.HourTransform(), "storeTimestamp_hour")


def _without_id(each: pa.Field) -> pa.Field:
    """`each` without Iceberg's number of it, at any depth.

    Files are found by the names of their columns.  One that numbers a single leaf passes for one that numbers all, and
    what has no number in it is null to a reader.  Source: Apache Iceberg table specification, column projection.
    """
    kind = each.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_without_id(kind.field(index)) for index in range(kind.num_fields)])
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_without_id(kind.value_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_without_id(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_without_id(kind.key_field), _without_id(kind.item_field))
    return pa.field(each.name, kind, each.nullable)


class IcebergTable:
    """See `spark.tables.formats.table.Table`."""

    def __init__(self, table: Any, directory: Path) -> None:
        self._table = table
        self._directory = directory.absolute()
        topic = table.properties.get(_TOPIC)
        if topic is None:
            raise ConfigError(f"{directory} is an Iceberg table of something else: it names no topic ({_TOPIC})")
        self.topic: str = topic

    @property
    def schema(self) -> pa.Schema:
        found: pa.Schema = self._table.schema().as_arrow()
        return pa.schema([_without_id(each) for each in found])

    @property
    def is_partitioned(self) -> bool:
        return bool(self._table.spec().fields)

    @property
    def data_root(self) -> Path:
        return self._directory / "data"

    @property
    def root(self) -> Path:
        return self.data_root

    def place(self, broker_name: str) -> BrokerPlace | None:
        return self._places().get(broker_name)

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        with self._table.update_schema() as update:
            update.union_by_name(pa.schema(fields))

    def commit(self, files: Sequence[DataFile], before: Places, after: Places) -> None:
        self._table.refresh()
        check_places(self, before, after)
        text = as_json({**self._places(), **after})
        uris = [self._uri(each) for each in files]

        def change(transaction: Any) -> None:
            transaction.set_properties({_PLACES: text})
            # With no file too: the snapshot is what tells another writer that the table has moved on.
            transaction.add_files(uris, {_PLACES: text}, check_duplicate_files=False)

        self._change(change)

    def files(self) -> list[DataFile]:
        return [self._data_file(task.file) for task in self._table.scan().plan_files()]

    def compact(self, target_bytes: int, min_files: int) -> int:
        tables = optional_package("pyiceberg.io.pyarrow", "a table of format iceberg")
        known = {each.path: each for each in self.files()}
        entries = {self._data_file(task.file).path: task.file for task in self._table.scan().plan_files()}
        gone = 0
        for merge in merges(list(known.values()), target_bytes, min_files):
            attempt = self._compaction_attempt()
            merged = write_merged(merge, self.data_root, self.data_root, self.schema, attempt)

            def change(transaction: Any, merge: Any = merge, merged: DataFile = merged) -> None:
                new = tables.parquet_file_to_data_file(self._table.io, transaction.table_metadata, self._uri(merged))
                with transaction.update_snapshot().overwrite() as overwrite:
                    for each in merge.files:
                        overwrite.delete_data_file(entries[each.path])
                    overwrite.append_data_file(new)

            self._change(change)
            gone += len(merge.files)
        return gone

    def settle(self, attempt: str) -> None:
        for name in (attempt, self._compaction_attempt()):
            for path in leftovers(self.data_root, name):
                path.unlink()

    def _change(self, change: Any) -> None:
        """Commit `change` once: repeated on top of another writer's commit, it would add the same messages again."""
        errors = optional_package("pyiceberg.exceptions", "a table of format iceberg")
        self._table.properties[_RETRIES] = "0"  # of this object; the table's own property stays as it is
        try:
            with self._table.transaction() as transaction:
                change(transaction)
        except errors.CommitFailedException as error:
            raise PlaceMoved(f"{self._directory}: {error}") from error
        except (errors.ValidationException, errors.CommitStateUnknownException) as error:
            raise StoreError(f"{self._directory}: {error}") from error
        except _sql_errors() as error:
            raise _of_sql(error, self._directory) from error

    def _compaction_attempt(self) -> str:
        """What a compaction that follows the current snapshot names its files by."""
        snapshot = self._table.current_snapshot()
        text = str(None if snapshot is None else snapshot.snapshot_id)
        return hashlib.blake2b(text.encode(), digest_size=6, person=b"compact").hexdigest()

    def _places(self) -> dict[str, BrokerPlace]:
        return from_json(self._table.properties.get(_PLACES, "{}"))

    def _uri(self, file: DataFile) -> str:
        return f"{_FILE}{self.data_root / file.path}"

    def _data_file(self, entry: Any) -> DataFile:
        path = Path(entry.file_path.removeprefix(_FILE)).relative_to(self.data_root).as_posix()
        hour = entry.partition[0] if self.is_partitioned else None
        return DataFile(path, hour, entry.record_count, entry.file_size_in_bytes)
