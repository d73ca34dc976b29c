"""Decoder of JSON bodies with a declared schema: pyarrow reads many at once, joined by line ends.

The reader does not know where a body ends, but each row surely comes from one body.  Every body begins with ``{`` and
ends with ``}``, and no JSON value has ``{`` directly after ``}``.  So no value spans two bodies, and every body becomes
at least one row.  If the number of rows is the number of bodies, each body became exactly one row.
"""

import json
import math
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from spark.tables.body.body_types import Decoded, decode_each, decode_runs
from sprocket.common.errors import ConfigError

_RUN_BYTES: Final = 32 * 1024 * 1024
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_BLANKS: Final = " \t\r\n"


class Json:
    """Decoder of JSON objects with the members `fields`.  A missing member is null; other members are left out."""

    def __init__(self, fields: pa.Schema) -> None:
        """Prepare the reader.  Raises ConfigError for a type that JSON cannot express."""
        for each in fields:
            _check_type(each.name, each.type)
        self.fields = fields
        # Dates are read as text and then converted: the reader would accept numbers as dates.
        self._read = pa.schema([(each.name, _read_as(each.type)) for each in fields])
        self._by_columns = not any(_has_map(each.type) for each in fields)
        self._options = pj.ParseOptions(
            explicit_schema=self._read, newlines_in_values=False, unexpected_field_behavior="ignore"
        )

    def decode(self, bodies: pa.Array) -> Decoded:
        if self._by_columns:
            return decode_runs(bodies, self._run, self.fields.types)
        return decode_each(bodies, self._one, self.fields, (ValueError, RecursionError))

    def _run(self, bodies: pa.Array) -> list[pa.Array]:
        """Return the columns of `bodies`.  Raises ArrowInvalid if one is not exactly one object of the schema."""
        if len(bodies) > 1 and bodies.nbytes > _RUN_BYTES:
            half = len(bodies) // 2
            parts = [self._run(bodies.slice(0, half)), self._run(bodies.slice(half))]
            return [pa.concat_arrays(pair) for pair in zip(*parts, strict=True)]
        if bodies.null_count:
            raise pa.ArrowInvalid("the message has no body")
        text = bodies.cast(pa.string())  # JSON is UTF-8
        bodies = _outer_bytes_are_braces(text)
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(bodies)], bodies), "\n")[0].as_buffer()
        return self._columns(joined, len(bodies))

    def _columns(self, text: pa.Buffer, count: int) -> list[pa.Array]:
        """Return the columns of `text`, which is `count` bodies.  Raises ArrowInvalid."""
        options = pj.ReadOptions(use_threads=False, block_size=text.size + 2)
        table = pj.read_json(pa.BufferReader(text), options, self._options)
        if table.num_rows != count:
            raise pa.ArrowInvalid("more than one JSON value in a body")
        columns = (table.column(each.name).combine_chunks() for each in self.fields)
        return [
            column if column.type == each.type else column.cast(each.type)
            for column, each in zip(columns, self.fields, strict=True)
        ]

    def _one(self, body: bytes) -> object:
        found = json.loads(body.decode(), parse_float=Decimal)
        if not isinstance(found, dict):
            raise ValueError(f"a JSON object is expected, not {type(found).__name__}")  # noqa: TRY004  # a body, not an argument
        return {each.name: _value(found.get(each.name), each.type) for each in self.fields}


def _outer_bytes_are_braces(bodies: pa.Array) -> pa.Array:
    """Return `bodies` without surrounding blanks.  Raises ArrowInvalid for one that is not in braces."""
    for attempt in (bodies, None):
        found = attempt if attempt is not None else pc.utf8_trim(bodies, _BLANKS)
        offsets = np.frombuffer(found.buffers()[1], np.int32)[found.offset : found.offset + len(found) + 1]
        data = np.frombuffer(found.buffers()[2] or b"", np.uint8)
        begins, ends = offsets[:-1], offsets[1:]
        long = ends - begins >= 2
        if not long.all():
            begins, ends = np.where(long, begins, 0), np.where(long, ends, 0)
        are_objects = long & (data[begins] == _OPEN) & (data[ends - 1] == _CLOSE) if data.size else long
        if are_objects.all():
            return found
    raise pa.ArrowInvalid(f"a JSON object is expected: {{ ... }} in row {int(np.argmin(are_objects))}")


def _check_type(name: str, kind: pa.DataType) -> None:
    if pa.types.is_binary(kind):
        raise ConfigError(f"field {name!r}: JSON has no binary; declare it as string")
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        raise ConfigError(f"field {name!r}: keys of a JSON object are string, not {kind.key_type}")
    for child in _children(kind):
        _check_type(f"{name}.{child.name}", child.type)


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.item_field]
    if pa.types.is_nested(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    return []


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(child.type) for child in _children(kind))


def _read_as(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_read_as(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _read_as(child.type)) for child in _children(kind)])
    return kind


def _value(value: object, kind: pa.DataType) -> object:
    """Return a parsed JSON value in the form from which pyarrow makes `kind`.  Raises ValueError."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            raise ValueError(f"an object is expected for {kind}")
        return [(name, _value(each, kind.item_type)) for name, each in value.items()]
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise ValueError(f"an object is expected for {kind}")
        return {child.name: _value(value.get(child.name), child.type) for child in _children(kind)}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise ValueError(f"a list is expected for {kind}")
        return [_value(each, kind.value_type) for each in value]
    return _scalar(value, kind)


def _scalar(value: object, kind: pa.DataType) -> object:
    """Return a value that is no object and no list, as strictly as pyarrow's reader: a number is not a string."""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if pa.types.is_string(kind):
        fits = isinstance(value, str)
    elif pa.types.is_boolean(kind):
        fits = isinstance(value, bool)
    elif pa.types.is_integer(kind):
        fits = is_number and isinstance(value, int)
    elif pa.types.is_floating(kind):
        fits = is_number
    elif pa.types.is_decimal(kind):
        fits = is_number or isinstance(value, str)
    else:
        fits = isinstance(value, str)
    if not fits:
        raise ValueError(f"{kind} is expected, not {json.dumps(value, default=str)[:80]}")
    if isinstance(value, Decimal) and pa.types.is_floating(kind):
        number = float(value)
        if math.isinf(number):
            raise ValueError(f"{value} is too large for {kind}")
        return number
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        return pa.scalar(f"{value:f}" if isinstance(value, Decimal) else str(value)).cast(kind).as_py()
    return value
