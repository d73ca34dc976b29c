"""Decoder of Protocol Buffers: a descriptor set (``protoc --include_imports --descriptor_set_out``), a message name.

Source: Protocol Buffers, language guide (scalar types, presence), `google/protobuf/descriptor.proto`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark.decode.columns import nearest
from spark.tables.body.body_types import NO_BODY, Decoded, decode_each, reason_of
from spark.tables.optional_package import optional_package
from sprocket.common.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Read = Callable[[Any], object]

# `FieldDescriptor.TYPE_*` to Arrow.  Unsigned 64 bits fit no signed column.
_TYPES: Final[dict[int, pa.DataType]] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.decimal128(20, 0),
    5: pa.int32(),
    6: pa.decimal128(20, 0),
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    14: pa.string(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
_ENUM: Final = 14
_TIMESTAMP: Final = "google.protobuf.Timestamp"


class BadMessage(ValueError):
    """Error for a body that is not a message of the type."""


class Protobuf:
    """Decoder of messages; their fields are the columns.  A field with presence is null if it is not set."""

    def __init__(self, descriptor_set: bytes, message_name: str) -> None:
        """Find the message.  Raises ConfigError for a wrong set, a missing message, a type without a column."""
        package = "a body of type protobuf"
        descriptor_pb2 = optional_package("google.protobuf.descriptor_pb2", package)
        factory = optional_package("google.protobuf.message_factory", package)
        pool = optional_package("google.protobuf.descriptor_pool", package).DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
            for file in files.file:
                pool.Add(file)
            names = [f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type]
        except Exception as error:  # the kinds of error differ between releases
            raise ConfigError(
                f"the file is not a descriptor set (protoc --descriptor_set_out): {reason_of(error)}"
            ) from error
        try:
            descriptor = pool.FindMessageTypeByName(message_name)
        except KeyError as error:
            raise ConfigError(
                f"the descriptor set has no message {message_name!r}{nearest(message_name, names)}"
                f"; it has {', '.join(names) or 'none'}"
            ) from error
        self._message = factory.GetMessageClass(descriptor)
        self.fields = pa.schema(list(_struct(descriptor, ())))
        self._one_field = [(each.name, _reader(each)) for each in descriptor.fields]

    def decode(self, bodies: pa.Array) -> Decoded:
        return decode_each(bodies, self._one, self.fields, (BadMessage,))

    def _one(self, body: bytes) -> object:
        if not body:
            raise BadMessage(NO_BODY)
        try:
            message = self._message.FromString(body)
        except Exception as error:  # each implementation has its own DecodeError
            raise BadMessage(f"the body is not a message of the type: {reason_of(error)}") from error
        return {name: read(message) for name, read in self._one_field}


def _struct(descriptor: "Descriptor", path: tuple[str, ...]) -> pa.DataType:
    if descriptor.full_name in path:
        raise ConfigError(f"message {descriptor.full_name} contains itself ({' > '.join(path)}), so it has no columns")
    path = (*path, descriptor.full_name)
    return pa.struct([pa.field(each.name, _arrow(each, path)) for each in descriptor.fields])


def _arrow(field: "FieldDescriptor", path: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_single(entry["key"], path), _single(entry["value"], path))
    single = _single(field, path)
    return pa.list_(single) if field.is_repeated else single


def _single(field: "FieldDescriptor", path: tuple[str, ...]) -> pa.DataType:
    if field.message_type is None:
        return _TYPES[field.type]
    if field.message_type.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    return _struct(field.message_type, path)


def _is_map(field: "FieldDescriptor") -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _reader(field: "FieldDescriptor") -> Read:
    """Return the function that reads `field` of a message in the form from which pyarrow makes columns."""
    name = field.name
    if _is_map(field):
        value = _value_reader(field.message_type.fields_by_name["value"])
        return lambda message: [(key, value(each)) for key, each in getattr(message, name).items()]
    single = _value_reader(field)
    if field.is_repeated:
        return lambda message: [single(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: single(getattr(message, name)) if message.HasField(name) else None
    return lambda message: single(getattr(message, name))


def _value_reader(field: "FieldDescriptor") -> Read:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return lambda moment: (moment.seconds * 1_000_000_000 + moment.nanos) // 1000
        members = [(each.name, _reader(each)) for each in field.message_type.fields]
        return lambda message: {name: read(message) for name, read in members}
    if field.type == _ENUM:
        values = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: values.get(number, str(number))
    return lambda value: value
