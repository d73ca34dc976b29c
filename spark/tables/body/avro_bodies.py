"""Decoder of Avro bodies: each is one datum in Avro's binary encoding, without a file header, of a declared schema.

Source: Apache Avro 1.11 specification (types, logical types).
"""

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from spark.tables.body.body_types import Decoded, decode_each, reason_of
from spark.tables.ddl import MAX_DECIMAL_DIGITS, has_column
from spark.tables.optional_package import optional_package
from sprocket.common.errors import ConfigError

_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_MAX_DEPTH: Final = 32


class BadDatum(ValueError):
    """Error for a body that is not a datum of the schema."""


class Avro:
    """Decoder of Avro records; their fields are the columns."""

    def __init__(self, schema: str) -> None:
        """Parse `schema`.  Raises ConfigError for a wrong schema, and for a type without a column."""
        fastavro = optional_package("fastavro", "a body of type avro")
        try:
            declared = json.loads(schema)
            self._schema = fastavro.parse_schema(declared)
        except Exception as error:  # fastavro raises many kinds
            raise ConfigError(f"the Avro schema cannot be read: {reason_of(error)}") from error
        self._read = fastavro.schemaless_reader
        if not isinstance(declared, dict) or declared.get("type") != "record":
            raise ConfigError("the Avro schema must be a record: its fields become the columns")
        kind = _arrow(declared, {}, declared.get("namespace", ""), "", 0)
        self.fields = pa.schema(list(kind))

    def decode(self, bodies: pa.Array) -> Decoded:
        return decode_each(bodies, self._one, self.fields, (BadDatum,))

    def _one(self, body: bytes) -> object:
        stream = io.BytesIO(body)
        try:
            found = self._read(stream, self._schema, None)
        except Exception as error:  # a damaged body can raise nearly anything in fastavro
            raise BadDatum(
                f"the body is not a datum of the Avro schema: {type(error).__name__} {reason_of(error)}"
            ) from error
        left = len(body) - stream.tell()
        if left:
            raise BadDatum(f"{left} bytes follow the Avro datum")
        return found


def _arrow(schema: Any, named: dict[str, Any], namespace: str, path: str, depth: int) -> pa.DataType:
    """Return the Arrow type of an Avro schema; `named` are the types defined so far."""
    if depth > _MAX_DEPTH:
        raise ConfigError(
            f"Avro field {path!r}: types may be nested at most {_MAX_DEPTH} deep, and none may contain itself"
        )
    if isinstance(schema, list):
        members = [member for member in schema if member != "null"]
        if len(members) != 1:
            raise ConfigError(f"Avro field {path!r}: a union may have only null and one other type")
        return _arrow(members[0], named, namespace, path, depth)
    if isinstance(schema, str):
        if schema in _TYPES:
            return _TYPES[schema]
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        found = named.get(full) or named.get(schema)
        if found is None:
            raise ConfigError(f"Avro field {path!r}: type {schema!r} has no column")
        return _arrow(found, named, namespace, path, depth + 1)
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return _arrow(kind, named, namespace, path, depth)
    if kind in ("record", "error", "enum", "fixed"):
        namespace = schema.get("namespace", namespace)
        name = schema["name"]
        named[name if "." in name or not namespace else f"{namespace}.{name}"] = schema
    if kind in ("record", "error"):
        return pa.struct(
            [
                pa.field(each["name"], _arrow(each["type"], named, namespace, _inside(path, each["name"]), depth + 1))
                for each in schema["fields"]
            ]
        )
    if kind == "array":
        return pa.list_(_arrow(schema["items"], named, namespace, _inside(path, "element"), depth + 1))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(schema["values"], named, namespace, _inside(path, "value"), depth + 1))
    return _scalar(schema, kind, path)


def _scalar(schema: Mapping[str, Any], kind: str, path: str) -> pa.DataType:
    logical = schema.get("logicalType")
    if logical == "decimal":
        precision, scale = schema["precision"], schema.get("scale", 0)
        if not has_column(precision, scale):
            raise ConfigError(
                f"Avro field {path!r}: decimal({precision},{scale}) has no column: "
                f"a column has at most {MAX_DECIMAL_DIGITS} digits"
            )
        return pa.decimal128(precision, scale)
    if logical == "uuid":
        raise ConfigError(f"Avro field {path!r}: leave out logicalType uuid: the column is a string")
    if logical in ("time-millis", "time-micros"):
        raise ConfigError(f"Avro field {path!r}: {logical} has no column; leave out its logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    return _arrow(kind, {}, "", path, 0)


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
