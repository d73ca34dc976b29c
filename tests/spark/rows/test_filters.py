"""Filters taken over from Spark: whatever they are, the rows are those of a naive reader."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as pushed

from spark.rows.filters import RowFilter, TimeRange, is_exact
from tests.spark.conftest import read_rows
from tests.spark.naive_reader import default_columns, moment
from tests.spark.read.test_log_reader import mixed_rows
from tests.spark.store_builder import Row, StoreBuilder
from tests.tiers import examples

COMPARE: dict[type[pushed.Filter], Callable[[Any, Any], bool]] = {
    pushed.EqualTo: lambda left, right: left == right,
    pushed.GreaterThan: lambda left, right: left > right,
    pushed.GreaterThanOrEqual: lambda left, right: left >= right,
    pushed.LessThan: lambda left, right: left < right,
    pushed.LessThanOrEqual: lambda left, right: left <= right,
    pushed.StringStartsWith: lambda left, right: left.startswith(right),
    pushed.StringEndsWith: lambda left, right: left.endswith(right),
    pushed.StringContains: lambda left, right: right in left,
}


def truth(each: Any, row: dict[str, object]) -> bool | None:
    """SQL's three-valued logic, one row at a time."""
    if isinstance(each, pushed.Not):
        inner = truth(each.child, row)
        return None if inner is None else not inner
    value = row[each.attribute[0]]
    match each:
        case pushed.IsNull():
            return value is None
        case pushed.IsNotNull():
            return value is not None
        case pushed.EqualNullSafe():
            return value == each.value
        case pushed.In():
            if value is None:
                return None
            return True if value in each.value else None if None in each.value else False
        case _:
            if value is None or each.value is None:
                return None
            return COMPARE[type(each)](value, each.value)


TEXTS = st.sampled_from(["AA", "UA", "", "étiquette", "Flights", "Über", "%RETRY%group", "nothing", "k1 k2", "A"])
NUMBERS = st.integers(-2, 60_000)
MOMENTS = st.integers(-600, 9_000).map(lambda ms: moment(1_700_000_000_000 + ms) + timedelta(microseconds=ms % 3))
VALUES = {
    **dict.fromkeys(("topic", "tags", "keys"), TEXTS),
    **dict.fromkeys(("queueId", "queueOffset", "physicalOffset"), NUMBERS),
    **dict.fromkeys(("bornTimestamp", "storeTimestamp"), MOMENTS),
}


@st.composite
def one_filter(draw: st.DrawFn) -> pushed.Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    path, values = (column,), VALUES[column]
    kinds: list[Any] = [pushed.IsNull, pushed.IsNotNull, pushed.In, pushed.EqualNullSafe, *list(COMPARE)[:5]]
    kind = draw(st.sampled_from([*kinds, *list(COMPARE)[5:]] if values is TEXTS else kinds))
    found: pushed.Filter
    if kind in (pushed.IsNull, pushed.IsNotNull):
        found = kind(path)
    elif kind is pushed.In:
        found = pushed.In(path, tuple(draw(st.lists(st.one_of(values, st.none()), max_size=3))))
    else:
        found = kind(path, draw(values))
    return pushed.Not(found) if draw(st.booleans()) else found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreBuilder:
    """Some records are dispatched, the last ones are not."""
    builder = StoreBuilder(tmp_path_factory.mktemp("store"), segment_bytes=1 << 14)
    rows = mixed_rows(250)
    builder.extend(rows[:200])
    builder.extend(rows[200:], index=False)
    builder.write()
    return builder


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filters=st.lists(one_filter(), max_size=3))
def test_rows_equal_those_of_a_naive_reader(store: StoreBuilder, filters: list[pushed.Filter]) -> None:
    rows = RowFilter()
    assert rows.accept(filters) == []
    found = read_rows(store.root, rows=rows)
    naive = [default_columns(row) for row in store.rows]
    assert found == [row for row in naive if all(truth(each, row) is True for each in filters)]


def test_contradictory_filters_read_nothing(store: StoreBuilder) -> None:
    rows = RowFilter()
    rows.accept([pushed.EqualTo(("topic",), "Flights"), pushed.EqualTo(("topic",), "Über")])
    assert rows.topics_to_read() == frozenset()
    assert read_rows(store.root, rows=rows) == []
    narrowed = RowFilter(topics=frozenset({"Flights"}))
    narrowed.accept([pushed.EqualTo(("topic",), "Über")])
    assert read_rows(store.root, rows=narrowed) == []
    assert read_rows(store.root, times=TimeRange(5, 5)) == []


@pytest.mark.parametrize(
    "each",
    [
        pushed.EqualTo(("queueId",), "3"),
        pushed.EqualTo(("queueId",), True),
        pushed.EqualTo(("topic",), 3),
        pushed.EqualTo(("storeTimestamp",), 1_700_000_000_000),
        pushed.EqualTo(("storeTimestamp",), moment(0).replace(tzinfo=None)),
        pushed.EqualTo(("body",), b"x"),
        pushed.IsNotNull(("properties",)),
        pushed.EqualTo(("properties", "a"), "1"),
        pushed.EqualTo(("queueId",), 1 << 40),
    ],
)
def test_what_cannot_be_applied_exactly_is_left_to_spark(each: pushed.Filter) -> None:
    assert not is_exact(each)
    assert RowFilter().accept([each]) == [each]


def test_a_row_without_tags_is_neither_equal_nor_unequal(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend([Row(properties={"TAGS": "a"}), Row(), Row(properties={"TAGS": "b"})])
    builder.write()
    rows = RowFilter()
    rows.accept([pushed.Not(pushed.EqualTo(("tags",), "a"))])
    assert [row["tags"] for row in read_rows(tmp_path, rows=rows)] == ["b"]
