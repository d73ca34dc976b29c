"""Bodies that do not decode among good ones: how often the good ones are read, and the outcome of each body."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.tables.body.body_types import decode_runs
from spark.tables.body.json_bodies import Json
from spark.tables.ddl import parse_schema
from tests.tiers import examples

GOOD = b'{"a": 1, "b": [1, 2]}'
BAD = [
    b'{"a": "x"}',
    b'{"a": ',
    b"no JSON",
    b"",
    b" ",
    b'{"a": 1.5}',
    b'{"a":1}{"a":2}',
    b'{"a":1,"a":2}',
    b'{"b":[400]}',
    b'{"c":"\xff"}',
]
SCHEMA = parse_schema("a bigint, b array<tinyint>")


@pytest.mark.parametrize("says_which", [True, False])
def test_good_rows_are_read_about_twice(says_which: bool) -> None:
    taken = 0

    def run(rows: pa.Array) -> list[pa.Array]:
        nonlocal taken
        taken += len(rows)
        bad = [index for index, row in enumerate(rows.to_pylist()) if row % 100 == 50]
        if bad:
            raise pa.ArrowInvalid(f"bad in row {bad[0]}" if says_which else "bad")
        return [rows]

    decoded = decode_runs(pa.array(range(10_000)), run, [pa.int64()])
    assert [each.row for each in decoded.failures] == list(range(50, 10_000, 100))
    assert {each.reason for each in decoded.failures} == {"bad"}
    assert decoded.kept is not None and decoded.kept.tolist() == [n for n in range(10_000) if n % 100 != 50]
    assert decoded.columns[0].to_pylist() == decoded.kept.tolist()
    # A run that fails is read to its first bad row only, which this count does not see.
    assert taken < 10_000 * (6 if says_which else 12)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.one_of(st.just(GOOD), st.sampled_from(BAD)), max_size=60))
def test_each_body_has_the_outcome_that_it_has_alone(bodies: list[bytes]) -> None:
    decoder = Json(SCHEMA)
    decoded = decoder.decode(pa.array(bodies, pa.binary()))
    kept = list(range(len(bodies))) if decoded.kept is None else decoded.kept.tolist()
    assert kept == [row for row, body in enumerate(bodies) if body == GOOD]
    alone = {body: decoder.decode(pa.array([body], pa.binary())).failures for body in set(bodies)}
    assert [(each.row, each.reason) for each in decoded.failures] == [
        (row, alone[body][0].reason) for row, body in enumerate(bodies) if alone[body]
    ]
    assert not any("in row" in each.reason for each in decoded.failures)
