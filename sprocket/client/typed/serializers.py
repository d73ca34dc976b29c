"""Serializers: between the values of a typed topic and the bodies of its messages.

The libraries of Avro, protobuf and pydantic are imported when a serializer that needs them is made.
"""

import sys
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Generic, Protocol, TypeVar, get_origin, is_typeddict

import msgspec
from msgspec import inspect

from sprocket.client.errors import IllegalArgument
from sprocket.common.extras import install

T = TypeVar("T")


class Serializer(Protocol[T]):
    """Encoder and decoder of one type.  Any object with these two methods is one."""

    def encode(self, value: T, /) -> bytes:
        """Return the body of `value`.  May raise anything."""

    def decode(self, body: bytes, /) -> T:
        """Return the value of `body`.  If it raises, the topic's `Undecodable` says what happens."""


class BytesSerializer:
    """Bodies as they are."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, body: bytes) -> bytes:
        return body


class JsonSerializer(Generic[T]):
    """JSON of msgspec structs, dataclasses, TypedDicts, NamedTuples, and builtin types; decoded values are checked.

    An encoded value must be an instance of the type, if that is a class; its fields are checked when they are read.
    """

    def __init__(self, kind: type[T]) -> None:
        """Raises IllegalArgument for a type that msgspec does not know."""
        self._encoder = msgspec.json.Encoder()
        self._classes = _classes_of(kind)
        try:
            if isinstance(inspect.type_info(kind), inspect.CustomType):
                raise IllegalArgument(f"{kind!r} has no JSON form; pass serializer=...")
            self._decoder = msgspec.json.Decoder(kind)
        except IllegalArgument:
            raise
        except TypeError as error:
            raise IllegalArgument(f"{kind!r} has no JSON form: {error}; pass serializer=...") from None

    def encode(self, value: T) -> bytes:
        _check_instance(value, self._classes)
        return self._encoder.encode(value)

    def decode(self, body: bytes) -> T:
        return self._decoder.decode(body)


class PydanticSerializer(Generic[T]):
    """JSON of a pydantic model, or of any type that pydantic validates.  Needs the package pydantic."""

    def __init__(self, kind: type[T]) -> None:
        """Raises IllegalArgument without pydantic."""
        try:
            from pydantic import TypeAdapter
        except ImportError:
            raise _missing("pydantic", "pydantic") from None
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)
        self._classes = _classes_of(kind)

    def encode(self, value: T) -> bytes:
        _check_instance(value, self._classes)
        return self._adapter.dump_json(value)

    def decode(self, body: bytes) -> T:
        return self._adapter.validate_json(body)


class AvroSerializer(Generic[T]):
    """Avro's binary form of one schema, without a header.  Needs the package fastavro (extra `avro`).

    With `kind` values are converted by msgspec: dataclasses, structs and TypedDicts.  Without it they are dicts.
    """

    def __init__(self, schema: Mapping[str, Any], kind: type[T] | None = None) -> None:
        """Raises IllegalArgument without fastavro or for an invalid schema."""
        try:
            import fastavro
        except ImportError:
            raise _missing("fastavro", "avro") from None
        self._write: Callable[..., None] = fastavro.schemaless_writer
        self._read: Callable[..., Any] = fastavro.schemaless_reader
        try:
            self._schema = fastavro.parse_schema(dict(schema))
        except Exception as error:  # fastavro has errors of several kinds
            raise IllegalArgument(f"schema is no Avro schema: {error!r}") from None
        self._kind = kind

    def encode(self, value: T) -> bytes:
        into = BytesIO()
        self._write(into, self._schema, value if self._kind is None else msgspec.to_builtins(value))
        return into.getvalue()

    def decode(self, body: bytes) -> T:
        source = BytesIO(body)
        value = self._read(source, self._schema, None)
        if source.tell() != len(body):
            raise ValueError(f"{len(body) - source.tell()} bytes are left after the Avro value")
        decoded: T = value if self._kind is None else msgspec.convert(value, self._kind)
        return decoded


class ProtobufMessage(Protocol):
    """Message class that protoc generated."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


P = TypeVar("P", bound=ProtobufMessage)


class ProtobufSerializer(Generic[P]):
    """Binary form of a message class that protoc generated.  Needs the package protobuf (extra `protobuf`)."""

    def __init__(self, kind: type[P]) -> None:
        """Raises IllegalArgument for another class."""
        parse: Callable[[bytes], P] | None = getattr(kind, "FromString", None)
        if parse is None or not hasattr(kind, "SerializeToString"):
            raise IllegalArgument(f"{kind!r} is no class of protobuf messages; pass one that protoc generated")
        self._parse = parse

    def encode(self, value: P) -> bytes:
        return value.SerializeToString()

    def decode(self, body: bytes) -> P:
        return self._parse(body)


def serializer_of(kind: type[T]) -> Serializer[T]:
    """Return the serializer for a type: bytes as they are, pydantic models, protobuf messages, else JSON by msgspec.

    Raises IllegalArgument for a type that has none.
    """
    found: Any
    if kind is bytes:
        found = BytesSerializer()
    elif _is_pydantic(kind):
        found = PydanticSerializer(kind)
    elif hasattr(kind, "SerializeToString"):
        found = ProtobufSerializer(kind)
    else:
        found = JsonSerializer(kind)
    serializer: Serializer[T] = found
    return serializer


def _classes_of(kind: object) -> tuple[type, ...]:
    """Return the classes whose instances are values of `kind`; none if that cannot be told from the class alone."""
    if not isinstance(kind, type) or get_origin(kind) is not None or is_typeddict(kind):
        return ()
    return (int, float) if kind is float else (kind,)


def _check_instance(value: object, classes: tuple[type, ...]) -> None:
    """Raise TypeError for a value of another class."""
    if classes and not isinstance(value, classes):
        raise TypeError(f"it is of type {type(value).__name__}, not {classes[-1].__name__}")


def _is_pydantic(kind: object) -> bool:
    """Return whether `kind` is a model; without importing pydantic, which then is loaded already."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _missing(package: str, extra: str) -> IllegalArgument:
    return IllegalArgument(f"the package {package} is not installed; run `{install(extra)}`")
