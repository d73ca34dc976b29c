"""Declaration of a table: topic, place, format, type of bodies; and the YAML file with several declarations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml

from spark.decode.columns import COLUMN_TYPES, column_names, nearest
from spark.tables.body.avro_bodies import Avro
from spark.tables.body.body_types import Binary, BodyDecoder, Text
from spark.tables.body.json_bodies import Json
from spark.tables.body.protobuf_bodies import Protobuf
from spark.tables.ddl import parse_schema
from spark.tables.formats.parquet_settings import Compression
from spark.tables.schema_change import member_without_members
from sprocket.client.arguments import check_topic
from sprocket.client.errors import ClientError
from sprocket.common.errors import ConfigError

MEBIBYTE: Final = 1024 * 1024
# Columns before the body's fields.  The first four identify a message.
MESSAGE_COLUMNS: Final = (
    "brokerName",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "bornTimestamp",
    "storeTimestamp",
    "tags",
    "keys",
)
_ALWAYS: Final = ("brokerName", "queueId", "queueOffset", "physicalOffset", "storeTimestamp")
_NOT_BESIDE_A_BODY: Final = ("topic", "body", "bodyString")
# Derived from storeTimestamp; in Iceberg they are a transform of it, not columns.
PARTITION_COLUMNS: Final = ("day", "hour")


class TableFormat(StrEnum):
    """Format of a table on the disk."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True)
class BodyType:
    """Declared type of the bodies.  `schema` is text or the bytes of a descriptor set, and is sent with tasks."""

    kind: str = "binary"
    schema: str | bytes = ""
    message: str = ""
    prefix: str = ""

    def decoder(self) -> BodyDecoder:
        """Return the decoder.  Raises ConfigError for a wrong or missing schema."""
        if self.kind not in _DECODERS:
            raise ConfigError(f"body type {self.kind!r}{nearest(self.kind, _DECODERS)}; known: {', '.join(_DECODERS)}")
        if self.kind in ("json", "avro", "protobuf") and not self.schema:
            raise ConfigError(f"a body of type {self.kind} needs a schema")
        return _DECODERS[self.kind](self)


_DECODERS: Final[dict[str, Callable[[BodyType], BodyDecoder]]] = {
    "binary": lambda body: Binary(),
    "text": lambda body: Text(),
    "json": lambda body: Json(parse_schema(str(body.schema))),
    "avro": lambda body: Avro(str(body.schema)),
    "protobuf": lambda body: Protobuf(_as_bytes(body.schema), body.message),
}


@dataclass(frozen=True)
class TableDeclaration:
    """Declaration of one table.  `dead_letters` is the table for messages that do not decode, by default beside it."""

    topic: str
    directory: Path
    format: TableFormat = TableFormat.PARQUET
    body: BodyType = field(default_factory=BodyType)
    columns: tuple[str, ...] = MESSAGE_COLUMNS
    dead_letters: Path | None = None
    catalog: tuple[tuple[str, str], ...] = ()  # Iceberg: properties for `pyiceberg.catalog.load_catalog`
    identifier: str = ""  # Iceberg: namespace.table
    fail_on_data_loss: bool = True
    drop_malformed: bool = False
    batch_bytes: int = 1024 * MEBIBYTE  # bytes of log in one commit
    interval_s: float = 10.0  # time between two checks of a followed log
    compact_files: int = 16  # merge the small files of an hour from this number on; 0: never
    target_file_bytes: int = 128 * MEBIBYTE
    compression: Compression = Compression.ZSTD  # for new files; compacted ones always use zstd

    def check(self) -> None:
        """Raise ConfigError for a declaration that no table can have."""
        try:
            check_topic(self.topic)
        except ClientError as error:
            raise ConfigError(str(error)) from error
        columns = column_names(self.columns)
        for name in columns:
            if name in _NOT_BESIDE_A_BODY:
                raise ConfigError(f"column {name!r} cannot be asked for: the declared type makes the body's columns")
        missing = [name for name in _ALWAYS if name not in columns]
        if missing:
            raise ConfigError(f"columns must have {', '.join(missing)}: they identify a message")
        self.schema()

    def schema(self) -> pa.Schema:
        """Return the columns of the table, without those of its partitions.  Raises ConfigError."""
        decoded = self.body.decoder().fields
        own = [pa.field(name, COLUMN_TYPES[name]) for name in column_names(self.columns)]
        taken = {each.name.lower() for each in own} | set(PARTITION_COLUMNS)
        for each in decoded:
            name = self.body.prefix + each.name
            if name.lower() in taken:
                raise ConfigError(
                    f"field {each.name!r} of the body has the name of another column; "
                    "give the body's fields a prefix, or leave that column out"
                )
            taken.add(name.lower())
            empty = member_without_members(pa.field(each.name, each.type))
            if empty is not None:
                raise ConfigError(f"field {empty!r} of the body is a struct without members: no column holds one")
            own.append(pa.field(name, each.type))
        return pa.schema(own)

    @property
    def dead_letter_directory(self) -> Path:
        """Directory of the table for messages that do not decode."""
        return self.dead_letters or self.directory.with_name(self.directory.name + "_dead_letters")


DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        *[pa.field(name, COLUMN_TYPES[name]) for name in (*_ALWAYS, "tags", "keys")],
        pa.field("reason", pa.string()),
        pa.field("body", pa.binary()),
    ]
)

# Keys of a table in YAML, with their fields.
_KEYS: Final = {
    "topic": "topic",
    "to": "directory",
    "format": "format",
    "body": "body",
    "columns": "columns",
    "deadLetters": "dead_letters",
    "catalog": "catalog",
    "identifier": "identifier",
    "failOnDataLoss": "fail_on_data_loss",
    "dropMalformed": "drop_malformed",
    "batchBytes": "batch_bytes",
    "intervalSeconds": "interval_s",
    "compactFiles": "compact_files",
    "targetFileBytes": "target_file_bytes",
    "compression": "compression",
}
assert set(_KEYS.values()) == {each.name for each in fields(TableDeclaration)}
BODY_KEYS: Final = ("type", "schema", "schemaFile", "message", "prefix")


def read_declarations(path: Path) -> list[TableDeclaration]:
    """Return the tables in the YAML file `path`; paths in it are relative to its directory.

    Raises ConfigError with the table and the key.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    listed = content.get("tables") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed or set(content) != {"tables"}:
        raise ConfigError(f"{path}: one key, tables, with a list of tables, each with topic and to")
    declarations = []
    taken: dict[Path, str] = {}
    for number, entry in enumerate(listed, 1):
        try:
            declaration = declaration_of(entry, path.parent)
        except ConfigError as error:
            raise ConfigError(f"{path}: table {number}: {error}") from error
        for directory in (declaration.directory, declaration.dead_letter_directory):
            if directory in taken:
                raise ConfigError(f"{path}: table {number}: {directory} is the place of {taken[directory]} already")
            taken[directory] = f"table {number} ({declaration.topic})"
        declarations.append(declaration)
    return declarations


def declaration_of(entry: object, base: Path) -> TableDeclaration:
    """Return one checked table of the YAML form.  Raises ConfigError with the key."""
    if not isinstance(entry, Mapping):
        raise ConfigError("a table is a map of keys")
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key!r}{nearest(str(key), _KEYS)}; known: {', '.join(_KEYS)}")
    for key in ("topic", "to"):
        if not entry.get(key):
            raise ConfigError(f"{key} is missing")
    given = {_KEYS[key]: _READ[key](key, value, base) for key, value in entry.items()}
    declaration = TableDeclaration(**given)
    declaration.check()
    return declaration


def _path(key: str, value: object, base: Path) -> Path:
    return (base / _text(key, value, base)).absolute()


def _text(key: str, value: object, base: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{key} is a text, not {value!r}")
    return value


def _one_of(kind: type[TableFormat] | type[Compression]) -> Callable[[str, object, Path], TableFormat | Compression]:
    def read(key: str, value: object, base: Path) -> TableFormat | Compression:
        try:
            return kind(str(value).lower())
        except ValueError:
            raise ConfigError(f"{key} is one of {', '.join(kind)}, not {value!r}") from None

    return read


def _flag(key: str, value: object, base: Path) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is true or false, not {value!r}")
    return value


def _at_least(minimum: float) -> Callable[[str, object, Path], float]:
    def read(key: str, value: object, base: Path) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or value < minimum:
            raise ConfigError(f"{key} is a number of at least {minimum:g}, not {value!r}")
        return value

    return read


def _whole(least: int) -> Callable[[str, object, Path], int]:
    def read(key: str, value: object, base: Path) -> int:
        number = _at_least(least)(key, value, base)
        if not isinstance(number, int):
            raise ConfigError(f"{key} is a whole number, not {value!r}")
        return number

    return read


def _names(key: str, value: object, base: Path) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ConfigError(f"{key} is a list of names, not {value!r}")
    return tuple(column_names([each.strip() for each in listed]))


def _properties(key: str, value: object, base: Path) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} is a map of properties of the catalogue, not {value!r}")
    return tuple((str(name), str(each)) for name, each in value.items())


def _body(key: str, value: object, base: Path) -> BodyType:
    given = {"type": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key} is a type or a map of {', '.join(BODY_KEYS)}, not {value!r}")
    for name in given:
        if name not in BODY_KEYS:
            raise ConfigError(f"{key}: unknown key {name!r}{nearest(str(name), BODY_KEYS)}")
    if "schema" in given and "schemaFile" in given:
        raise ConfigError(f"{key}: schema and schemaFile exclude each other")
    kind = _text(f"{key}.type", given.get("type", "binary"), base)
    schema: str | bytes = str(given.get("schema", ""))
    if "schemaFile" in given:
        schema = schema_from(_path(f"{key}.schemaFile", given["schemaFile"], base), kind)
    return BodyType(kind, schema, str(given.get("message", "")), str(given.get("prefix", "")))


def schema_from(path: Path, kind: str) -> str | bytes:
    """Read a schema from a file: text, or a descriptor set of protobuf.  Raises ConfigError."""
    try:
        return path.read_bytes() if kind == "protobuf" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"schema file {path}: {error}") from error


def _as_bytes(schema: str | bytes) -> bytes:
    if not isinstance(schema, bytes):
        raise ConfigError("a body of type protobuf needs a schemaFile: a descriptor set")
    return schema


_READ: Final[dict[str, Callable[[str, Any, Path], Any]]] = {
    "topic": _text,
    "to": _path,
    "format": _one_of(TableFormat),
    "body": _body,
    "columns": _names,
    "deadLetters": _path,
    "catalog": _properties,
    "identifier": _text,
    "failOnDataLoss": _flag,
    "dropMalformed": _flag,
    "batchBytes": _whole(MEBIBYTE),
    "intervalSeconds": _at_least(0.05),
    "compactFiles": _whole(0),
    "targetFileBytes": _whole(1024),
    "compression": _one_of(Compression),
}
