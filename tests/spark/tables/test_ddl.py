"""Spark's schemas as Arrow; Spark itself says what they mean."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.tables.ddl import parse_schema
from spark.tables.declaration import BodyType, TableDeclaration
from spark.tables.schema_change import written_type
from sprocket.common.errors import ConfigError

NESTED = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "price", "type": "decimal(12,3)", "nullable": True, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
            {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}},
            {"name": "local", "type": "timestamp_ntz", "nullable": True, "metadata": {}},
            {"name": "tiny", "type": "byte", "nullable": True, "metadata": {}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "containsNull": True,
                    "elementType": {
                        "type": "struct",
                        "fields": [
                            {"name": "sku", "type": "string", "nullable": True, "metadata": {}},
                            {
                                "name": "more",
                                "type": {
                                    "type": "map", "keyType": "string", "valueType": "double",
                                    "valueContainsNull": True,
                                },
                                "nullable": True,
                                "metadata": {},
                            },
                        ],
                    },
                },
                "nullable": True,
                "metadata": {},
            },
        ],
    }
)  # fmt: skip
DDL = """
    id BIGINT NOT NULL COMMENT 'of the order', `price` decimal(12, 3), day: date, at timestamp, local timestamp_ntz,
    tiny tinyint, lines array<struct<sku: string, more: map<string, double>>>
"""


@pytest.mark.parametrize("text", [DDL, NESTED.json()], ids=["ddl", "json"])
def test_both_forms_mean_what_spark_means_by_them(text: str) -> None:
    parsed = parse_schema(text)
    expected = to_arrow_schema(NESTED, timezone="UTC")
    assert parsed.names == expected.names
    for own, spark in zip(parsed, expected, strict=True):
        assert written_type(own.type, spark.type) is not None, own
        assert own.nullable


def test_names_in_backticks() -> None:
    assert parse_schema("`a b` int, `c``d` string").names == ["a b", "c`d"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no field"),
        ("id", "a name is expected at the end"),
        ("id bigit", "type 'bigit' is not known"),
        ("id bigint name string", "',' is expected"),
        ("a int, A string", "have one name"),
        ("a decimal(50,2)", "precision is 1 to 38"),
        ("a array<int", "'>' is expected"),
        ("a int; drop", "not understood"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "nested at most"),
        ('{"type": "struct"}', "no JSON form"),
        ('{"type": "array", "elementType": "long"}', "has the type struct"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "lng"}]}', "'lng' is not known"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_schema(text)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ("a struct<>", "a"),
        ("n int, a array<struct<x:int,y:struct<>>>", r"a\.\w+\.y"),
        ("m map<string,struct<>>", r"m\.value"),
    ],
)
def test_a_struct_without_members_is_no_column(schema: str, named: str) -> None:
    """Parquet has no form of it."""
    declaration = TableDeclaration("T", Path("/lake"), body=BodyType("json", schema))
    with pytest.raises(ConfigError, match=f"field '{named}' of the body is a struct without members"):
        declaration.check()


def test_schema_is_arrow() -> None:
    assert parse_schema("a int, b binary") == pa.schema([("a", pa.int32()), ("b", pa.binary())])
