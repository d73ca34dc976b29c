"""Readers of requests that come often.

With the compiled engine a request becomes plain objects, whose attributes are those of protobuf's objects: these cost
a call several times the work of its parsing.  With pure Python, and for a request with thousands of parts, protobuf's
objects are used themselves.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from sprocket.engine.choice import native

_native: Final = native("sprocket.grpc_wire.reader_native")
# What a field holds, as `reader_native.pyx` numbers it.
_NUMBERS: Final = {
    FieldDescriptor.TYPE_INT32: 1, FieldDescriptor.TYPE_ENUM: 1, FieldDescriptor.TYPE_INT64: 2,
    FieldDescriptor.TYPE_BOOL: 3,
}  # fmt: skip
_TEXT, _OCTETS, _MESSAGE, _TEXTS, _MESSAGES, _TEXT_MAP, _INT32S = range(4, 11)
_NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})


class Record:
    """Message with the attributes of protobuf's objects; absent fields have their default."""

    def HasField(self, name: str) -> bool:  # noqa: N802 - protobuf's name
        """Return whether a field with presence is there."""
        return name in self.__dict__

    def __eq__(self, other: object) -> bool:
        names = self.__dict__.keys() | getattr(other, "__dict__", {}).keys()
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]


def reader(kind: Any, engine: Any = _native) -> Callable[[bytes], Any]:
    """Return the reader of a class of protobuf's messages; it raises DecodeError or ValueError.

    `engine` is the compiled module, None for pure Python.  Raises ValueError for fields that it cannot read.
    """
    parse: Callable[[bytes], Any] = kind.FromString
    if engine is None:
        return parse
    read_plain = _schema(kind.DESCRIPTOR, engine)[0].read

    def read(data: bytes) -> Any:
        found = read_plain(data)
        return parse(data) if found is None else found

    return read


def _schema(descriptor: Descriptor, engine: Any) -> tuple[Any, type[Record]]:
    fields = [_field(field, engine) for field in descriptor.fields]
    record = type(descriptor.name, (Record,), {name: default for _, name, _, _, default in fields})
    return engine.Schema(record, tuple(fields)), record


def _field(field: FieldDescriptor, engine: Any) -> tuple[int, str, int, Any, Any]:
    """Return number, name, kind, schema and default of a field."""
    part, default = None, field.default_value
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        message = field.message_type
        if message.GetOptions().map_entry:
            if {one.type for one in message.fields} != {FieldDescriptor.TYPE_STRING}:
                raise ValueError(f"{field.full_name} is no map of texts")
            return field.number, field.name, _TEXT_MAP, None, _NO_TEXTS
        part, record = _schema(message, engine)
        kind, default = (_MESSAGES, ()) if field.is_repeated else (_MESSAGE, record())
    elif field.type == FieldDescriptor.TYPE_STRING:
        kind, default = (_TEXTS, ()) if field.is_repeated else (_TEXT, default)
    elif field.type == FieldDescriptor.TYPE_BYTES and not field.is_repeated:
        kind = _OCTETS
    elif field.type in _NUMBERS and not field.is_repeated:
        kind = _NUMBERS[field.type]
    elif _NUMBERS.get(field.type) == 1:
        kind, default = _INT32S, ()
    else:
        raise ValueError(f"{field.full_name} has a type that is not read")
    return field.number, field.name, kind, part, default
