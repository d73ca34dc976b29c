"""What the files of a table are made of, as their own footers say."""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.tables.declaration import BodyType, TableDeclaration, TableFormat, declaration_of
from spark.tables.formats.compaction import merges, write_merged
from spark.tables.formats.data_file import DataFile, DataWriter
from spark.tables.formats.parquet_settings import Compression
from spark.tables.formats.table_place import existing_table
from sprocket.common.errors import ConfigError
from tests.spark.store_builder import Row, StoreBuilder
from tests.spark.tables.test_job import run, store_of

SCHEMA = pa.schema(
    [
        ("queueOffset", pa.int64()),
        ("status", pa.string()),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("counts", pa.map_(pa.string(), pa.int64()))]))),
        ("body", pa.binary()),
    ]
)


def written(directory: Path, compression: Compression = Compression.ZSTD) -> DataFile:
    rows = [
        {"queueOffset": n, "status": "new", "lines": [{"sku": f"s{n % 3}", "counts": [("a", n % 2)]}], "body": b"b"}
        for n in range(200)
    ]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    writer = DataWriter(directory, SCHEMA, "test", is_partitioned=False, compression=compression)
    writer.add(batch, np.zeros(200, np.int64))
    return writer.close()[0]


def columns(path: Path) -> dict[str, pq.ColumnChunkMetaData]:
    group = pq.read_metadata(path).row_group(0)
    return {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}


def test_every_leaf_but_the_body_has_statistics(tmp_path: Path) -> None:
    found = columns(tmp_path / written(tmp_path).path)
    assert {path for path, each in found.items() if not each.is_stats_set} == {"body"}
    assert len(found) == 6


def test_what_repeats_has_a_dictionary_at_any_depth(tmp_path: Path) -> None:
    found = columns(tmp_path / written(tmp_path).path)
    with_dictionary = {path for path, each in found.items() if each.has_dictionary_page}
    assert with_dictionary == found.keys() - {"queueOffset", "body"}


@pytest.mark.parametrize(
    ("compression", "name"),
    [(Compression.ZSTD, "ZSTD"), (Compression.SNAPPY, "SNAPPY"), (Compression.NONE, "UNCOMPRESSED")],
)
def test_files_are_compressed_as_declared_and_zstd_once_compacted(
    compression: Compression, name: str, tmp_path: Path
) -> None:
    files = [written(tmp_path, compression) for _ in range(2)]
    assert {each.compression for each in columns(tmp_path / files[0].path).values()} == {name}
    (merge,) = merges(files, 1 << 20, 2)
    merged = write_merged(merge, tmp_path, tmp_path, SCHEMA, "test")
    assert {each.compression for each in columns(tmp_path / merged.path).values()} == {"ZSTD"}


def test_a_declared_compression_reaches_the_files(tmp_path: Path) -> None:
    declared = declaration_of({"topic": "T", "to": "table", "compression": "snappy"}, tmp_path)
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(Row(topic="T", body=b"body %d" % n) for n in range(9))
    run(declared, store_of(builder))
    (file,) = existing_table(declared.directory).files()
    (path,) = declared.directory.rglob(file.name)
    assert {each.compression for each in columns(path).values()} == {"SNAPPY"}


def test_an_unknown_compression_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compression is one of zstd, snappy, none, not 'gzip'"):
        declaration_of({"topic": "T", "to": "table", "compression": "gzip"}, tmp_path)


def test_an_iceberg_table_of_nested_columns_is_written_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(Row(topic="T", body=b'{"n": [1, 2], "m": {"a": %d}}' % n) for n in range(9))
    body = BodyType("json", "n array<bigint>, m map<string,int>")
    with caplog.at_level(logging.WARNING):
        run(TableDeclaration("T", tmp_path / "table", TableFormat.ICEBERG, body), store_of(builder))
    assert [record.getMessage() for record in caplog.records] == []
