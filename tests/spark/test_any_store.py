"""Any store, any options, any filters: the rows are those of a naive reader."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as pushed

from spark.rows.filters import RowFilter, TimeRange
from sprocket.remoting.message.record import SysFlag
from tests.spark.conftest import read_rows
from tests.spark.naive_reader import default_columns
from tests.spark.rows.test_filters import one_filter, truth
from tests.spark.store_builder import Row, StoreBuilder
from tests.tiers import examples

TOPICS = ["Flights", "Über", "%RETRY%group", "A"]


@st.composite
def rows_of_a_store(draw: st.DrawFn) -> list[Row]:
    rows = []
    for index in range(draw(st.integers(0, 60))):
        tags = draw(st.sampled_from([None, "AA", "UA", ""]))
        rows.append(
            Row(
                topic=draw(st.sampled_from(TOPICS)),
                queue_id=draw(st.integers(0, 1)),
                body=bytes(draw(st.sampled_from([0, 1, 50, 900]))),
                properties={} if tags is None else {"TAGS": tags},
                store_timestamp=1_700_000_000_000 + index * 100 - draw(st.sampled_from([0, 0, 400])),
                sys_flag=draw(st.sampled_from([0, 0, 0, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_PREPARED])),
                version=draw(st.integers(1, 2)),
                store_host=draw(st.sampled_from([bytes(4), bytes(16)])),
            )
        )
    return rows


@st.composite
def options_of_a_read(draw: st.DrawFn) -> dict[str, Any]:
    times = draw(st.one_of(st.none(), st.tuples(st.integers(-500, 6500), st.integers(-500, 6500))))
    options: dict[str, Any] = {
        "min_partitions": draw(st.integers(1, 5)),
        "read_uncommitted": draw(st.booleans()),
        "max_clock_step_back_ms": draw(st.sampled_from([400, 7_200_000])),
    }
    if times is not None:
        options["times"] = TimeRange(1_700_000_000_000 + times[0], 1_700_000_000_000 + times[1])
    named = st.frozensets(st.sampled_from([*TOPICS, "Nowhere"]), min_size=1)
    topics = draw(st.one_of(st.none(), st.none(), named))
    if topics is not None:
        options["topics"] = topics
    elif draw(st.booleans()):
        options["topic_pattern"] = draw(st.sampled_from(["Fl.*", ".*", "A|Über", "none"]))
    return options


def is_wanted(row: Row, options: dict[str, Any]) -> bool:
    times: TimeRange = options.get("times", TimeRange())
    pattern = options.get("topic_pattern")
    matches = {"Fl.*": {"Flights"}, ".*": set(TOPICS), "A|Über": {"A", "Über"}, "none": set(), None: set(TOPICS)}
    return (
        row.topic in matches[pattern]
        and ("topics" not in options or row.topic in options["topics"])
        and times.begin_ms <= row.store_timestamp < times.end_ms
        and (options["read_uncommitted"] or row.sys_flag != SysFlag.TRANSACTION_PREPARED)
    )


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=rows_of_a_store(),
    dispatched=st.integers(0, 60),
    options=options_of_a_read(),
    filters=st.lists(one_filter(), max_size=2),
    first_segment=st.integers(0, 3),
)
def test_rows_equal_those_of_a_naive_reader(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Row],
    dispatched: int,
    options: dict[str, Any],
    filters: list[pushed.Filter],
    first_segment: int,
) -> None:
    root: Path = tmp_path_factory.mktemp("any")
    builder = StoreBuilder(root, segment_bytes=1 << 12, queue_entries=10, first_offset=first_segment << 12)
    for index, row in enumerate(rows):
        # What was never committed is in no ConsumeQueue.
        is_half = row.sys_flag == SysFlag.TRANSACTION_PREPARED
        builder.append(row, index=index < dispatched and not is_half)
    builder.write()
    if not rows:
        (root / "commitlog" / f"{first_segment << 12:020d}").write_bytes(bytes(1 << 12))
    filtering = RowFilter(options.get("topics"), options.get("topic_pattern"), options.get("times", TimeRange()))
    assert filtering.accept(filters) == []
    found = read_rows(root, rows=filtering, **options)
    naive = [default_columns(row) for row in builder.rows if is_wanted(row, options)]
    assert found == [row for row in naive if all(truth(each, row) is True for each in filters)]
