"""Delta table: the place in each broker's log is kept as an application's transaction (`txn`).

Such a transaction survives checkpoints and the cleaning of the log, and of two writers at the same place only one
commits.  Source: Delta Lake protocol, "Transaction Identifiers", "Add File and Remove File".
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spark.tables.declaration import PARTITION_COLUMNS
from spark.tables.formats.compaction import merges
from spark.tables.formats.data_file import DataFile, day_and_hour, leftovers
from spark.tables.formats.table import check_places
from spark.tables.optional_package import optional_package
from spark.tables.place import BrokerPlace, PlaceMoved, Places, as_json
from sprocket.common.errors import ConfigError, StoreError

_TOPIC: Final = "rocketmq.topic"
_LEAST: Final = -(1 << 63)


def open_delta(directory: Path, topic: str, schema: pa.Schema, is_partitioned: bool) -> "DeltaTable":
    """Open the table at `directory`, or create it.  Raises ConfigError."""
    package = optional_package("deltalake", "a table of format delta")
    if not package.DeltaTable.is_deltatable(str(directory)):
        parts = [pa.field("day", pa.date32()), pa.field("hour", pa.int32())] if is_partitioned else []
        package.DeltaTable.create(
            str(directory),
            pa.schema([*schema, *parts]),
            partition_by=list(PARTITION_COLUMNS) if is_partitioned else None,
            configuration={_TOPIC: topic},
            raise_if_key_not_exists=False,
        )
    return DeltaTable(directory, package)


class DeltaTable:
    """See `spark.tables.formats.table.Table`."""

    def __init__(self, directory: Path, package: Any) -> None:
        self._directory = self.data_root = self.root = directory
        self._package = package
        self._table = package.DeltaTable(str(directory))
        topic = self._table.metadata().configuration.get(_TOPIC)
        if topic is None:
            raise ConfigError(f"{directory} is a Delta table of something else: it names no topic ({_TOPIC})")
        self.topic: str = topic

    @property
    def schema(self) -> pa.Schema:
        columns = pa.schema(self._table.schema().to_arrow())
        parts = self._table.metadata().partition_columns
        return pa.schema([each for each in columns if each.name not in parts])

    @property
    def is_partitioned(self) -> bool:
        return bool(self._table.metadata().partition_columns)

    def place(self, broker_name: str) -> BrokerPlace | None:
        end, offset, timestamp = (self._version(broker_name, part) for part in ("", "#offset", "#timestamp"))
        return None if end is None else BrokerPlace(end, -1 if offset is None else offset, timestamp or -1)

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        converted = self._package.Schema.from_arrow(pa.schema(fields)).fields
        self._table.alter.add_columns(converted)
        self._reload()

    def commit(self, files: Sequence[DataFile], before: Places, after: Places) -> None:
        self._reload()
        check_places(self, before, after)
        transactions = [
            self._package.Transaction(self._application(name, part), value)
            for name, place in after.items()
            for part, value in (("", place.end), ("#offset", place.last_offset), ("#timestamp", place.last_timestamp))
        ]
        properties = self._package.CommitProperties(
            custom_metadata={"rocketmq.places": as_json(after)}, app_transactions=transactions
        )
        parts = self._table.metadata().partition_columns
        try:
            self._table.create_write_transaction(
                [self._add_action(each) for each in files], "append", self._table.schema(), partition_by=parts,
                commit_properties=properties,
            )  # fmt: skip
        except self._package.exceptions.CommitFailedError as error:
            raise PlaceMoved(f"{self._directory}: {error}") from error
        except self._package.exceptions.DeltaError as error:
            raise StoreError(f"{self._directory}: {error}") from error
        self._reload()

    def files(self) -> list[DataFile]:
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [DataFile(each["path"], _hour(each), each["num_records"] or 0, each["size_bytes"]) for each in actions]

    def compact(self, target_bytes: int, min_files: int) -> int:
        gone = 0
        found = merges(self.files(), target_bytes, min_files)
        for hour in dict.fromkeys(merge.hour for merge in found):
            filters = None
            if hour is not None:
                day, hour_of_day = day_and_hour(hour)
                filters = [("day", "=", day), ("hour", "=", str(hour_of_day))]
            metrics = self._table.optimize.compact(partition_filters=filters, target_size=target_bytes)
            gone += int(metrics["numFilesRemoved"])
        if found:
            self._reload()
        return gone

    def settle(self, attempt: str) -> None:
        for path in leftovers(self._directory, attempt):
            path.unlink()

    def _add_action(self, file: DataFile) -> object:
        values: dict[str, str | None] = {}
        if file.hour is not None:
            day, hour_of_day = day_and_hour(file.hour)
            values = {"day": day, "hour": str(hour_of_day)}
        transaction = optional_package("deltalake.transaction", "a table of format delta")
        written_ms = (self._directory / file.path).stat().st_mtime_ns // 1_000_000
        return transaction.AddAction(file.path, file.size_bytes, values, written_ms, True, file.statistics)

    def _application(self, broker_name: str, part: str) -> str:
        return f"rocketmq/{self.topic}/{broker_name}{part}"

    def _version(self, broker_name: str, part: str) -> int | None:
        found = self._table.transaction_version(self._application(broker_name, part))
        return None if found is None or found == _LEAST else int(found)

    def _reload(self) -> None:
        self._table = self._package.DeltaTable(str(self._directory))


def _hour(action: dict[str, Any]) -> int | None:
    day = action.get("partition.day")
    return None if day is None else (day.toordinal() - _EPOCH_DAY) * 24 + int(action["partition.hour"])


_EPOCH_DAY: Final = 719_163  # date(1970, 1, 1).toordinal()
