"""The columns of an Iceberg table as a reader finds them that goes by the specification alone."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark.tables.declaration import BodyType, TableDeclaration, TableFormat
from spark.tables.formats.table_place import existing_table
from tests.spark.store_builder import Row, StoreBuilder
from tests.spark.tables.test_job import run, store_of

FIRST = "n int, lines array<struct<sku:string,count:int>>"
MORE = f"{FIRST}, tags_ array<string>, more map<string,bigint>"


def rows(begin: int, end: int) -> list[Row]:
    more = {"lines": [{"sku": "a", "count": 1}], "tags_": ["x"], "more": {"y": 1}}
    return [Row(topic="T", body=json.dumps({"n": n, **more}).encode()) for n in range(begin, end)]


def numbers(each: pa.Field) -> list[bytes]:
    """Numbers of fields in the file, of `each` and all below it."""
    own = [number] if (number := (each.metadata or {}).get(b"PARQUET:field_id")) else []
    kind = each.type
    if pa.types.is_map(kind):
        children = [kind.key_field, kind.item_field]
    else:
        children = [kind.field(index) for index in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return [*own, *(number for child in children for number in numbers(child))]


def test_no_file_numbers_some_of_its_columns_and_every_name_has_a_number(tmp_path: Path) -> None:
    """Where one column has a number, Iceberg's own readers take those without one for null."""
    builder = StoreBuilder(tmp_path / "store", segment_bytes=1 << 15)
    for number, schema in enumerate((FIRST, MORE, MORE)):
        declared = TableDeclaration("T", tmp_path / "table", TableFormat.ICEBERG, BodyType("json", schema))
        builder.extend(rows(9 * number, 9 * number + 9))
        run(declared, store_of(builder), compact=number == 2)
    table = existing_table(declared.directory)
    files = list(declared.directory.rglob("part-*.parquet"))
    assert len(files) > len(table.files())
    for path in files:
        assert not [number for each in pq.read_schema(path) for number in numbers(each)], path
    newest = max(declared.directory.glob("metadata/*.metadata.json"))
    mapping = json.loads(json.loads(newest.read_text())["properties"]["schema.name-mapping.default"])
    assert {name for each in mapping for name in each["names"]} == set(table.schema.names)
