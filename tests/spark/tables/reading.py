"""Tables as others read them: each format by the package that everybody uses for it, nothing of ours in between."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from spark.tables.declaration import TableFormat


def read_table(kind: TableFormat, directory: Path, topic: str = "T") -> list[dict[str, Any]]:
    """All rows, by brokerName and physicalOffset; no rows if there is no table yet."""
    table = _READ[kind](directory, topic)
    return sorted(table.to_pylist(), key=lambda row: (row["brokerName"], row["physicalOffset"]))


def _parquet(directory: Path, topic: str) -> pa.Table:
    """By the manifest: what spark.read.parquet finds is asked for elsewhere."""
    manifest = json.loads((directory / "_rocketmq" / "manifest.json").read_text())
    files = {name for name, *_ in manifest["files"]}
    paths = [path for path in directory.rglob("part-*.parquet") if path.name in files]
    assert len(paths) == len(files)
    schemas = [ds.dataset(path).schema for path in paths]
    return ds.dataset(paths, schema=pa.unify_schemas(schemas) if schemas else pa.schema([])).to_table()


def _delta(directory: Path, topic: str) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(str(directory)).to_pyarrow_table()


def _iceberg(directory: Path, topic: str) -> pa.Table:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        "rocketmq", type="sql", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}"
    )
    return catalog.load_table(("rocketmq", topic)).scan().to_arrow()


_READ = {TableFormat.PARQUET: _parquet, TableFormat.DELTA: _delta, TableFormat.ICEBERG: _iceberg}
