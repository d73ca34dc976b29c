"""Bodies to columns: every row is either decoded as by itself, or a failure with a reason."""

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.tables.body.avro_bodies import Avro
from spark.tables.body.body_types import Binary, BodyDecoder, Text
from spark.tables.body.json_bodies import Json
from spark.tables.body.protobuf_bodies import Protobuf
from spark.tables.ddl import parse_schema
from sprocket.common.errors import ConfigError
from tests.tiers import examples


def decode(decoder: BodyDecoder, bodies: list[bytes]) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """By row what was decoded, and why not."""
    decoded = decoder.decode(pa.array(bodies, pa.binary()))
    rows = pa.RecordBatch.from_arrays(decoded.columns, schema=decoder.fields).to_pylist()
    kept = range(len(bodies)) if decoded.kept is None else decoded.kept.tolist()
    return dict(zip(kept, rows, strict=True)), {each.row: each.reason for each in decoded.failures}


SIMPLE = Json(parse_schema("a bigint, b string"))
GOOD = b'{"a": 1, "b": "x"}'
TRICKY: dict[bytes, str | None] = {
    b"{}": None,
    b' \n{"a": 5,\r\n "z": {"b": [1]}}\t': None,
    b'{"a":null,"b":"{\\"a\\":1}"}': None,
    b'{"b":"\xc3\xa4\\n"}': None,
    b"": "a JSON object is expected",
    b"   ": "a JSON object is expected",
    b'{"a":1}{"a":2}': "more than one",
    b'{"a":1}\n{"a":2}': "more than one",
    b'{"a":1},{"a":2}': "",
    b'{"a":1': "expected",
    b'"a":1}': "expected",
    b'{"a":"1"}': "changed from",
    b'{"a":1.5}': "1.5",
    b'{"b":1}': "changed from",
    b'{"a":1,"a":2}': "twice",
    b"[1]": "a JSON object is expected",
    b"null": "a JSON object is expected",
    b'{"b":"\xff"}': "utf",
    b'{"b":"\n"}': "",
    b'{"a":99999999999999999999}': "couldn't parse",
    b"nope": "a JSON object is expected",
}


@pytest.mark.parametrize("body", TRICKY)
def test_json_says_of_one_body_what_is_wrong_and_takes_its_neighbours(body: bytes) -> None:
    rows, failures = decode(SIMPLE, [GOOD, body, GOOD])
    reason = TRICKY[body]
    assert rows[0] == rows[2] == {"a": 1, "b": "x"}
    if reason is None:
        assert failures == {}
        expected = json.loads(body)
        assert rows[1] == {"a": expected.get("a"), "b": expected.get("b")}
    else:
        assert list(failures) == [1] and reason.lower() in failures[1].lower()
        assert "in row" not in failures[1]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from([GOOD, *TRICKY]), max_size=40))
def test_json_decodes_a_row_as_it_does_alone(bodies: list[bytes]) -> None:
    """Two bodies that fail in opposite ways must not make up for each other."""
    rows, failures = decode(SIMPLE, bodies)
    assert sorted([*rows, *failures]) == list(range(len(bodies)))
    for row, body in enumerate(bodies):
        alone, alone_failed = decode(SIMPLE, [body])
        assert rows.get(row) == alone.get(0)
        assert (row in failures) == bool(alone_failed)


def test_json_of_every_type() -> None:
    schema = (
        "i int, f float, d decimal(9,2), t timestamp, n timestamp_ntz, y date, s struct<x:int,u:date>, l array<boolean>"
    )
    body = (
        b'{"i":1,"f":2,"d":1.25,"t":"2024-01-02T03:04:05.5+01:00","n":"2024-01-02 03:04:05","y":"2024-02-29",'
        b'"s":{"x":7,"u":"2024-01-01","more":1},"l":[true,null]}'
    )
    expected = {
        "i": 1, "f": 2.0, "d": decimal.Decimal("1.25"),
        "t": datetime.datetime(2024, 1, 2, 2, 4, 5, 500_000, datetime.UTC),
        "n": datetime.datetime(2024, 1, 2, 3, 4, 5),
        "y": datetime.date(2024, 2, 29), "s": {"x": 7, "u": datetime.date(2024, 1, 1)}, "l": [True, None],
    }  # fmt: skip
    by_columns, failures = decode(Json(parse_schema(schema)), [body, b'{"y":"2024-02-30"}'])
    assert by_columns[0] == expected and list(failures) == [1]
    # With a map the rows are read one by one; they come to the same.
    with_map, failures = decode(
        Json(parse_schema(schema + ", m map<string,int>")), [body[:-1] + b',"m":{"k":3}}', b"[]"]
    )
    assert with_map[0] == {**expected, "m": [("k", 3)]}
    assert "object is expected" in failures[1]


@pytest.mark.parametrize("schema", ["d decimal(20,2), f double", "d decimal(20,2), f double, m map<string,int>"])
def test_json_numbers_keep_their_digits(schema: str) -> None:
    bodies = [b'{"d":123456789012345678.91,"f":1.5e3}', b'{"d":-7}', b'{"d":1.999}', b'{"f":1e400}']
    rows, failures = decode(Json(parse_schema(schema)), bodies)
    assert rows[0]["d"] == decimal.Decimal("123456789012345678.91") and rows[0]["f"] == 1500.0
    assert rows[1]["d"] == -7
    assert sorted(failures) == [2, 3]


@pytest.mark.parametrize(
    ("schema", "message"), [("a binary", "no binary"), ("a struct<b:map<int,int>>", "keys of a JSON object")]
)
def test_json_refuses_types_that_it_has_no_form_of(schema: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Json(parse_schema(schema))


def test_text_and_binary() -> None:
    bodies = [b"a", b"\xff", "ä".encode(), b""]
    rows, failures = decode(Text(), bodies)
    assert {row: each["body"] for row, each in rows.items()} == {0: "a", 2: "ä", 3: ""}
    assert list(failures) == [1]
    rows, failures = decode(Binary(), bodies)
    assert [rows[row]["body"] for row in range(4)] == bodies and not failures


def test_a_slice_of_bodies_is_decoded_as_the_whole() -> None:
    bodies = pa.array([b"junk", *[b'{"a":%d}' % n for n in range(50)]], pa.binary()).slice(1)
    decoded = SIMPLE.decode(bodies)
    assert decoded.kept is None and decoded.columns[0].to_pylist() == list(range(50))
    assert np.array_equal(decoded.columns[1].is_null(), np.ones(50, bool))


AVRO = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "was", "type": "State"},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip


def test_avro() -> None:
    order = {
        "id": 5, "note": None, "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "price": decimal.Decimal("1.25"), "state": "NEW", "was": "OLD", "more": {"k": 1}, "lines": [{"sku": "s"}],
    }  # fmt: skip
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), order)
    body = stream.getvalue()
    rows, failures = decode(Avro(json.dumps(AVRO)), [body, body[:-3], body + b"x", b"", body])
    assert rows[0] == rows[4] == {**order, "more": [("k", 1)]}
    assert sorted(failures) == [1, 2, 3]
    assert "1 bytes follow" in failures[2] and "not a datum" in failures[1]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "cannot be read"),
        ('"long"', "must be a record"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":["int","string"]}]}', "'x': a union"),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":'
            '{"type":"bytes","logicalType":"decimal","precision":50,"scale":2}}]}',
            r"'x': decimal\(50,2\) has no column",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":["null","R"]}]}',
            "none may contain itself",
        ),
    ],
)
def test_avro_schemas_without_columns_are_refused(schema: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Avro(schema)


def descriptors() -> bytes:
    """``shop.Order`` with each kind of field, and ``shop.Tree``, which contains itself."""
    field = descriptor_pb2.FieldDescriptorProto
    stamp = descriptor_pb2.FileDescriptorProto(
        name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3"
    )
    moment = stamp.message_type.add(name="Timestamp")
    moment.field.add(name="seconds", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    moment.field.add(name="nanos", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=[stamp.name]
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="OLD", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    optional, repeated = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=optional)
    order.oneof_decl.add(name="_note")
    order.field.add(name="note", number=2, type=field.TYPE_STRING, label=optional, proto3_optional=True, oneof_index=0)
    order.field.add(name="big", number=3, type=field.TYPE_UINT64, label=optional)
    order.field.add(name="state", number=4, type=field.TYPE_ENUM, type_name=".shop.State", label=optional)
    order.field.add(name="lines", number=5, type=field.TYPE_MESSAGE, type_name=".shop.Line", label=repeated)
    entry = order.nested_type.add(name="MoreEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=optional)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=optional)
    order.field.add(name="more", number=6, type=field.TYPE_MESSAGE, type_name=".shop.Order.MoreEntry", label=repeated)
    order.field.add(
        name="at", number=7, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=optional
    )
    again = file.message_type.add(name="Tree")
    again.field.add(name="child", number=1, type=field.TYPE_MESSAGE, type_name=".shop.Tree", label=optional)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString()


def test_protobuf() -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(
        id=-7, big=2**64 - 1, state=1, lines=[{"sku": "s"}], more={"k": 3}, at={"seconds": 1, "nanos": 5_000}
    )
    body = order.SerializeToString()
    rows, failures = decode(Protobuf(descriptors(), "shop.Order"), [body, b"\xff\xff", b"", body])
    assert rows[0] == rows[3] == {
        "id": -7, "note": None, "big": decimal.Decimal(2**64 - 1), "state": "OLD", "lines": [{"sku": "s"}],
        "more": [("k", 3)], "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 5, datetime.UTC),
    }  # fmt: skip
    assert sorted(failures) == [1, 2]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"\xff\xff", "shop.Order", "not a descriptor set"),
        (descriptors(), "shop.Ordr", "did you mean 'shop.Order'"),
        (descriptors(), "shop.Tree", "contains itself"),
    ],
)
def test_protobuf_descriptors_that_cannot_be_used_are_refused(content: bytes, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Protobuf(content, name)
