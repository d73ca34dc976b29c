"""Table of plain Parquet files: ``day=.../hour=.../part-....parquet``, and a manifest that lists the valid ones.

A commit replaces ``_rocketmq/manifest.json`` by a rename.  New files are written below ``_rocketmq/staging``, and moved
to their place after the commit that names them; removed files are deleted after it.  The next start finishes what a
kill interrupted.  So a reader that ignores the manifest, such as ``spark.read.parquet``, never sees a message twice or
without a commit; right after a commit it may not see the new files yet.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from spark.tables.formats.compaction import merges, write_merged
from spark.tables.formats.data_file import DataFile, partition_path
from spark.tables.formats.table import OWN_DIRECTORY, check_places
from spark.tables.place import BrokerPlace, Places, as_json, from_json
from sprocket.common.errors import StoreError
from sprocket.common.files.atomic_file import replace_file, sync_directory

_VERSION: Final = 1


def _schema_to_json(schema: pa.Schema) -> dict[str, str]:
    """Return a map that `_schema_from_json` reads; only people read its entry `columns`."""
    encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
    return {"columns": ", ".join(f"{each.name} {each.type}" for each in schema), "arrow": encoded}


def _schema_from_json(value: dict[str, str]) -> pa.Schema:
    """Return the schema in a map that `_schema_to_json` made.  Raises ValueError, KeyError."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["arrow"])))


@dataclass(frozen=True)
class _Manifest:
    topic: str
    is_partitioned: bool
    schema: pa.Schema
    places: dict[str, BrokerPlace]
    files: tuple[DataFile, ...]

    def encode(self) -> bytes:
        rows = [[each.name, each.hour, each.rows, each.size_bytes] for each in self.files]
        return json.dumps(
            {
                "version": _VERSION,
                "topic": self.topic,
                "partitioned": self.is_partitioned,
                "schema": _schema_to_json(self.schema),
                "places": json.loads(as_json(self.places)),
                "files": rows,
            },
            indent=1,
        ).encode()

    @classmethod
    def decode(cls, content: bytes) -> "_Manifest":
        found = json.loads(content)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']} is not known")
        files = [DataFile(partition_path(hour) + name, hour, rows, size) for name, hour, rows, size in found["files"]]
        return cls(
            found["topic"],
            found["partitioned"],
            _schema_from_json(found["schema"]),
            from_json(json.dumps(found["places"])),
            tuple(files),
        )


def open_parquet(directory: Path, topic: str, schema: pa.Schema, is_partitioned: bool) -> "ParquetTable":
    """Open the table at `directory`, or create it.  Raises StoreError for a manifest that is damaged, OSError."""
    path = directory / OWN_DIRECTORY / "manifest.json"
    if not path.exists():
        replace_file(path, _Manifest(topic, is_partitioned, schema, {}, ()).encode())
    try:
        manifest = _Manifest.decode(path.read_bytes())
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error!r}") from error
    return ParquetTable(directory, manifest)


class ParquetTable:
    """See `spark.tables.formats.table.Table`."""

    def __init__(self, directory: Path, manifest: _Manifest) -> None:
        self._directory = self.root = directory
        self._manifest = manifest
        self._staging = self.data_root = directory / OWN_DIRECTORY / "staging"

    @property
    def topic(self) -> str:
        return self._manifest.topic

    @property
    def schema(self) -> pa.Schema:
        return self._manifest.schema

    @property
    def is_partitioned(self) -> bool:
        return self._manifest.is_partitioned

    def place(self, broker_name: str) -> BrokerPlace | None:
        return self._manifest.places.get(broker_name)

    def files(self) -> list[DataFile]:
        return list(self._manifest.files)

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        self._replace(replace(self._manifest, schema=pa.schema([*self.schema, *fields])))

    def commit(self, files: Sequence[DataFile], before: Places, after: Places) -> None:
        check_places(self, before, after)
        self._sync_staged(files)
        places = {**self._manifest.places, **after}
        self._replace(replace(self._manifest, places=places, files=(*self._manifest.files, *files)))
        for each in files:
            self._to_its_place(each)

    def compact(self, target_bytes: int, min_files: int) -> int:
        gone = 0
        for merge in merges(self._manifest.files, target_bytes, min_files):
            merged = write_merged(merge, self._directory, self._staging, self.schema, "compacted")
            self._sync_staged([merged])
            left = [each for each in self._manifest.files if each not in merge.files]
            self._replace(replace(self._manifest, files=(*left, merged)))
            # Delete first, then add: a reader without the manifest may miss rows briefly, but never sees them twice.
            for each in merge.files:
                (self._directory / each.path).unlink(missing_ok=True)
            self._to_its_place(merged)
            gone += len(merge.files)
        return gone

    def settle(self, attempt: str) -> None:
        """Finish an interrupted commit, and remove every file that no commit names."""
        wanted = {each.path for each in self._manifest.files}
        for path in sorted(self._directory.rglob("part-*.parquet")):
            relative = path.relative_to(self._directory)
            if relative.parts[0] != OWN_DIRECTORY and relative.as_posix() not in wanted:
                path.unlink()
        for each in self._manifest.files:
            if (self._staging / each.path).exists():
                self._to_its_place(each)
        for path in sorted(self._staging.rglob("part-*.parquet")):
            path.unlink()

    def _replace(self, manifest: _Manifest) -> None:
        replace_file(self._directory / OWN_DIRECTORY / "manifest.json", manifest.encode())
        self._manifest = manifest

    def _sync_staged(self, files: Sequence[DataFile]) -> None:
        """The directories of `files`: their content is on the disk already."""
        for folder in {(self._staging / each.path).parent for each in files}:
            sync_directory(folder)

    def _to_its_place(self, file: DataFile) -> None:
        target = self._directory / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._staging / file.path).replace(target)
