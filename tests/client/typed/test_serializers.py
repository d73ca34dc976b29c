"""Serializers: values survive, other bodies are refused, missing libraries are named."""

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket import (
    AvroSerializer,
    BytesSerializer,
    IllegalArgument,
    JsonSerializer,
    ProtobufSerializer,
    PydanticSerializer,
)
from sprocket.client.typed.serializers import serializer_of
from tests.tiers import examples


@dataclass
class Order:
    number: int
    item: str


class OrderStruct(msgspec.Struct):
    number: int
    item: str


class OrderModel(pydantic.BaseModel):
    number: int
    item: str


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "long"}, {"name": "item", "type": "string"}],
}
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(codec="utf-8"))


@settings(max_examples=examples(25))
@given(NUMBERS, TEXTS)
def test_values_survive(number: int, item: str) -> None:
    pairs: list[tuple[Any, Any]] = [
        (serializer_of(Order), Order(number, item)),
        (serializer_of(OrderStruct), OrderStruct(number, item)),
        (serializer_of(OrderModel), OrderModel(number=number, item=item)),
        (serializer_of(StringValue), StringValue(value=item)),
        (serializer_of(dict), {"number": number, "item": item}),
        (serializer_of(bytes), item.encode()),
        (AvroSerializer(SCHEMA), {"number": number, "item": item}),
        (AvroSerializer(SCHEMA, Order), Order(number, item)),
    ]
    for serializer, value in pairs:
        assert serializer.decode(serializer.encode(value)) == value


def test_the_serializer_of_a_type() -> None:
    kinds = {
        bytes: BytesSerializer, Order: JsonSerializer, OrderStruct: JsonSerializer, OrderModel: PydanticSerializer,
        StringValue: ProtobufSerializer,
    }  # fmt: skip
    assert {kind: type(serializer_of(kind)) for kind in kinds} == kinds
    with pytest.raises(IllegalArgument, match="no JSON form"):
        serializer_of(complex)
    with pytest.raises(IllegalArgument, match="no Avro schema"):
        AvroSerializer({"type": "nonsense"})
    with pytest.raises(IllegalArgument, match="protoc"):
        ProtobufSerializer(Order)  # type: ignore[type-var]


@pytest.mark.parametrize("body", [b"", b"{}", b"{", b'{"number": "x", "item": "y"}', b"\xff" * 40])
def test_other_bodies_are_refused(body: bytes) -> None:
    serializers: list[Any] = [
        serializer_of(Order),
        serializer_of(OrderStruct),
        serializer_of(OrderModel),
        AvroSerializer(SCHEMA, Order),
    ]
    for serializer in serializers:
        with pytest.raises(Exception):  # noqa: B017 - of many libraries
            serializer.decode(body)


def test_libraries_are_loaded_by_their_serializers_only() -> None:
    program = (
        "import sys; sys.modules.update(fastavro=None, pydantic=None)\n"
        "import sprocket; sprocket.JsonSerializer(int)\n"
        "assert not any(name.startswith('google.protobuf') for name in sys.modules)\n"
        "for make in (lambda: sprocket.AvroSerializer({}), lambda: sprocket.PydanticSerializer(int)):\n"
        "    try: make()\n"
        "    except sprocket.IllegalArgument as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'sprocket-mq[avro]'" in done.stdout
    assert "pip install 'sprocket-mq[pydantic]'" in done.stdout


@pytest.mark.parametrize("kind", [Order, OrderStruct, OrderModel, int, dict, list[int], int | str])
def test_a_value_of_another_class_is_refused(kind: Any) -> None:
    serializer: Any = serializer_of(kind)
    if isinstance(kind, type) and kind is not list[int]:
        with pytest.raises(TypeError, match=f"of type bytes, not {kind.__name__}"):
            serializer.encode(b"no value")
    else:
        assert serializer.decode(serializer.encode([1] if kind == list[int] else "a")) in ([1], "a")
    assert serializer_of(float).encode(1) == b"1"


def test_what_is_no_type_is_refused() -> None:
    for wrong in (object(), "Order", object):
        with pytest.raises(IllegalArgument, match="has no JSON form"):
            serializer_of(wrong)  # type: ignore[arg-type]
