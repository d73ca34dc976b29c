"""Parser of Spark's two forms of a schema to Arrow: DDL (``id bigint, at timestamp, tags array<string>``) and JSON.

Source: Spark 4, `StructType.fromDDL`, `DataType.fromJson`; the types that tables of all three formats have.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn

import pyarrow as pa

from sprocket.common.errors import ConfigError

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*)|('(?:[^'\\]|\\.)*')|(\d+)|([<>(),:]))", re.DOTALL)
# Maximum number of digits of a decimal, in Spark and in each of the formats.
MAX_DECIMAL_DIGITS: Final = 38
_MAX_DEPTH: Final = 32
_MAX_FIELDS: Final = 4096


def parse_schema(text: str) -> pa.Schema:
    """Parse `text` in either form.  Raises ConfigError with the place and the known types."""
    return _from_json(text) if text.lstrip().startswith("{") else _Ddl(text).schema()


class _Ddl:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._quoted = False

    def schema(self) -> pa.Schema:
        fields = self._fields(end="", depth=0)
        if not fields:
            raise ConfigError("the schema has no field: as in 'id bigint, name string'")
        return pa.schema(_checked(fields))

    def _fields(self, end: str, depth: int) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            name = self._name()
            if self._peek() == ":":
                self._take()
            kind = self._type(depth)
            # A body may lack any field, so every column is nullable.
            if self._word_is("NOT"):
                self._take()
                self._expect_word("NULL")
            if self._word_is("COMMENT"):
                self._take()
                self._take()
            fields.append(pa.field(name, kind))
        return fields

    def _type(self, depth: int) -> pa.DataType:
        if depth > _MAX_DEPTH:
            self._fail(f"types are nested at most {_MAX_DEPTH} deep")
        word = self._name().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word == "array":
            self._expect("<")
            element = self._type(depth + 1)
            self._expect(">")
            return pa.list_(element)
        if word == "map":
            self._expect("<")
            key = self._type(depth + 1)
            self._expect(",")
            value = self._type(depth + 1)
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            fields = self._fields(">", depth + 1)
            self._expect(">")
            return pa.struct(_checked(fields))
        return self._fail(f"type {word!r} is not known; known: {', '.join(_SIMPLE)}, decimal, array, map, struct")

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take()
            precision = self._number()
            if self._peek() == ",":
                self._take()
                scale = self._number()
            self._expect(")")
        return _decimal(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            self._fail(f"a number is expected, not {token!r}")
        return int(token)

    def _name(self) -> str:
        token = self._take()
        if not self._quoted and not re.fullmatch(r"[A-Za-z_]\w*", token):
            self._fail(f"a name is expected, not {token!r}" if token else "a name is expected at the end")
        return token

    def _word_is(self, word: str) -> bool:
        return self._peek().upper() == word and not self._quoted

    def _expect_word(self, word: str) -> None:
        if self._take().upper() != word:
            self._fail(f"{word} is expected")

    def _expect(self, symbol: str) -> None:
        token = self._take()
        if token != symbol:
            self._fail(f"{symbol!r} is expected, not {token!r}")

    def _peek(self) -> str:
        at = self._at
        token = self._take()
        self._at = at
        return token

    def _take(self) -> str:
        """Return the next token, "" at the end."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self._text[self._at :].strip():
                self._fail("this is not understood")
            self._quoted = False
            return ""
        self._at = match.end()
        self._quoted = match[1] is not None
        return match[1].replace("``", "`") if match[1] is not None else match[0].strip()

    def _fail(self, reason: str) -> NoReturn:
        raise ConfigError(f"schema: {reason} (near {self._text[max(0, self._at - 12) : self._at + 20]!r})")


def _from_json(text: str) -> pa.Schema:
    try:
        kind = _json_type(json.loads(text), 0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"schema: no JSON form of a Spark schema: {error!r}") from error
    if not pa.types.is_struct(kind):
        raise ConfigError("schema: the JSON form of a Spark schema has the type struct")
    return pa.schema(list(kind))


def _json_type(value: object, depth: int) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise ConfigError(f"schema: types are nested at most {_MAX_DEPTH} deep")
    if isinstance(value, str):
        match = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", value)
        if match:
            return _decimal(int(match[1]), int(match[2]))
        if value not in _SIMPLE:
            raise ConfigError(f"schema: type {value!r} is not known; known: {', '.join(_SIMPLE)}")
        return _SIMPLE[value]
    assert isinstance(value, Mapping)
    if value["type"] == "struct":
        return pa.struct(
            _checked([pa.field(each["name"], _json_type(each["type"], depth + 1)) for each in value["fields"]])
        )
    if value["type"] == "array":
        return pa.list_(_json_type(value["elementType"], depth + 1))
    if value["type"] == "map":
        return pa.map_(_json_type(value["keyType"], depth + 1), _json_type(value["valueType"], depth + 1))
    raise ConfigError(f"schema: type {value['type']!r} is not known")


def _decimal(precision: int, scale: int) -> pa.DataType:
    if not has_column(precision, scale):
        raise ConfigError(
            f"schema: decimal({precision},{scale}): precision is 1 to {MAX_DECIMAL_DIGITS}, scale at most as much"
        )
    return pa.decimal128(precision, scale)


def has_column(precision: int, scale: int) -> bool:
    """Return whether a decimal column can have `precision` digits, `scale` of them after the point."""
    return 1 <= precision <= MAX_DECIMAL_DIGITS and scale <= precision


def _checked(fields: list[pa.Field]) -> list[pa.Field]:
    if len(fields) > _MAX_FIELDS:
        raise ConfigError(f"schema: {len(fields)} fields, at most {_MAX_FIELDS}")
    seen: dict[str, str] = {}
    for each in fields:
        # Some engines that read tables ignore the case of names.
        if each.name.lower() in seen:
            raise ConfigError(f"schema: fields {seen[each.name.lower()]!r} and {each.name!r} have one name")
        seen[each.name.lower()] = each.name
    return fields
