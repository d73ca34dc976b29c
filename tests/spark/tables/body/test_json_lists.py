"""Lists of numbers that are taken out of JSON text: what comes of a body is what comes of it without that."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.tables.body import json_lists
from spark.tables.body.json_bodies import Json
from spark.tables.body.json_lists import whole_numbers
from spark.tables.ddl import parse_schema
from tests.tiers import examples

SCHEMA = "id bigint, samples array<bigint>, small array<tinyint>, name string, more struct<samples:string>"


def outcome(decoder: Json, bodies: list[bytes]) -> tuple[list[list[object]], list[int], list[tuple[int, str]]]:
    decoded = decoder.decode(pa.array(bodies, pa.binary()))
    kept = range(len(bodies)) if decoded.kept is None else decoded.kept.tolist()
    failed = sorted((each.row, each.reason) for each in decoded.failures)
    return [column.to_pylist() for column in decoded.columns], list(kept), failed


def without(schema: str) -> Json:
    """A decoder that takes nothing out."""
    decoder = Json(parse_schema(schema))
    decoder._lists.names.clear()  # the way that the text goes otherwise
    return decoder


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lists, "_MIN_BYTES", 0)
    monkeypatch.setattr(json_lists, "_MIN_SHARE", -1.0)


BOTH = Json(parse_schema(SCHEMA)), without(SCHEMA)
GOOD = b'{"id": 1, "samples": [1, 22, -333], "small":[7]}'
ODD = [
    b'{"samples": [1], "samples": [2]}',
    b'{"samples": [1], "samples": null}',
    b'{"samples": null}',
    b'{"samples":null,"small": []}',
    b'{"samples": "1, 2"}',
    b'{"samples": "[1, 2]"}',
    b'{"other": {"samples": [5]}, "sampl\\u0065s": []}',
    b'{"other": {"samples": [5]}, "samples" : []}',
    b'{"other": {"samples": [5]}, "samples": []}',
    b'{"other": {"samples": [5]}}',
    b'{"other": [{"samples": [05]}]}',
    b'{"other": [{"samples": [5]}], "id":"x"}',
    b'{"more": {"samples": "x"}, "samples": [5]}',
    b'{"more": {"samples": [5]}}',
    b'{"x\\"samples": [3]}',
    b'{"name": "\\"samples\\": [3]", "samples": [4]}',
    b'{"name": "samples", "samples": [4]}',
    b'{"name": "]", "samples": [4]}',
    b'{"name": "[", "samples": [4]}',
    b'{"samples": ["4"]}',
    b'{"samples": [[4]]}',
    b'{"samples": [4, null]}',
    b'{"samples": [1.5]}',
    b'{"samples": [1.0]}',
    b'{"samples": [1e2]}',
    b'{"samples": [01]}',
    b'{"samples": [-]}',
    b'{"samples": [--1]}',
    b'{"samples": [-0, 0]}',
    b'{"samples": [+1]}',
    b'{"samples": [1,]}',
    b'{"samples": [,1]}',
    b'{"samples": [1 2]}',
    b'{"samples": [1 , 2]}',
    b'{"samples": [ 1,2 ]}',
    b'{"samples": [1,\n2]}',
    b'{"samples": [1,  2]}',
    b'{"samples": [ ]}',
    b'{"samples": []}',
    b'{"samples": [1:2]}',
    b'{"samples": [true]}',
    b'{"samples": [12345678, 123456789, 1234567890123456, -9876543210987654]}',
    b'{"samples": [12345678901234567]}',
    b'{"samples": [9223372036854775807, -9223372036854775808]}',
    b'{"samples": [9223372036854775808]}',
    b'{"samples": [1}',
    b'{"samples": 1]}',
    b'{"samples": [1]',
    b'"samples": [1]}',
    b'{"small": [127, -128]}',
    b'{"small": [128]}',
    b'{"samples": [1]}{"samples": [2]}',
    b'{"samples": [1]},{"samples": [2]}',
    b'{"samples": [NaN]}',
    b'{"samples": [1], "name": "\xff"}',
    b'{"samples": [1], "name": "\\ud800"}',
    b'{"samples": [1], "name": "\\n\\u00e4\\\\"}',
    b'{"samples": {"a": [1]}}',
    b"{}",
    b"",
]


@pytest.mark.parametrize("body", ODD)
def test_an_odd_body_among_good_ones(body: bytes) -> None:
    taking, plain = BOTH
    for bodies in ([body], [GOOD, body, GOOD], [body] * 3 + [GOOD] * 20):
        assert outcome(taking, bodies) == outcome(plain, bodies)


def test_the_lists_of_good_bodies_are_taken_out() -> None:
    bodies = pa.array([GOOD, b'{"small":[]}', b'{"samples":null}', b'{"samples":[5]}'] * 3, pa.string())
    text = pa.py_buffer("\n".join(bodies.to_pylist()).encode())
    begins = np.cumsum([0, *[len(each) + 1 for each in bodies.to_pylist()[:-1]]])
    taken = BOTH[0]._lists.take_out(text, begins)  # how it came to its rows
    assert taken is not None and b"333" not in taken.rest.to_pybytes()
    assert taken.rows["samples"].tolist() == [0, 3, 4, 7, 8, 11] and taken.counts["samples"].tolist() == [3, 1] * 3
    assert taken.values["samples"].tolist() == [1, 22, -333, 5] * 3


LISTS = st.one_of(
    st.none(),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
    st.lists(st.integers(-200, 200), max_size=30),
    st.lists(st.one_of(st.floats(), st.booleans(), st.text(max_size=2), st.none(), st.integers()), max_size=3),
)
VALUES = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=3))
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(st.integers(-5, 5), VALUES), "samples": LISTS, "small": LISTS, "name": VALUES, "z": VALUES,
        "more": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"samples": st.one_of(VALUES, LISTS)})),
    },
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(BODIES, st.sampled_from([(", ", ": "), (",", ":"), (" ,", " : ")]), st.booleans()), max_size=12)
)
def test_any_objects_come_to_the_same(drawn: list[tuple[dict[str, object], tuple[str, str], bool]]) -> None:
    bodies = [
        json.dumps(body, separators=how, ensure_ascii=escaped).encode(errors="replace") for body, how, escaped in drawn
    ]
    taking, plain = BOTH
    assert outcome(taking, bodies) == outcome(plain, bodies)


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=4), st.integers(0, 10_000))
def test_damaged_bodies_come_to_the_same(noise: bytes, seed: int) -> None:
    choice = random.Random(seed)
    bodies = []
    for _ in range(8):
        body = bytearray(GOOD)
        if choice.random() < 0.3:
            at = choice.randrange(len(body))
            body[at : at + choice.randrange(3)] = noise
        bodies.append(bytes(body))
    taking, plain = BOTH
    assert outcome(taking, bodies) == outcome(plain, bodies)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(st.integers(-(10**16) + 1, 10**16 - 1), max_size=6), max_size=6), st.sampled_from([",", ", "]))
def test_whole_numbers(lists: list[list[int]], between: str) -> None:
    found = whole_numbers(pa.array([between.join(map(str, each)).encode() for each in lists], pa.binary()))
    assert found is not None
    assert found[0].tolist() == [value for each in lists for value in each]
    assert found[1].tolist() == [len(each) for each in lists]


def test_whole_numbers_over_many_blocks() -> None:
    numbers = list(range(-20_000, 20_000))
    found = whole_numbers(pa.array([", ".join(map(str, numbers)).encode()] * 2, pa.binary()))
    assert found is not None and found[0].tolist() == numbers * 2
    assert whole_numbers(pa.array([(",".join(map(str, numbers)) + ",x").encode()], pa.binary())) is None
