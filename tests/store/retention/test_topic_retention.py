"""Retention per topic: what consumers may still read, while the log keeps the bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sprocket.common.figures import values
from store.retention import topic_retention
from store.retention.topic_retention import TopicRule
from tests.store.retention.cleaning import BODY, HOUR_S, PER_SEGMENT, CleanedStore
from tests.store.rig import message
from tests.tiers import examples

HOUR_MS = 3_600_000


@pytest.fixture
def cleaned(tmp_path: Path) -> Iterator[CleanedStore]:
    opened = CleanedStore(tmp_path / "store")
    yield opened
    opened.close()


def put(cleaned: CleanedStore, sizes: list[int], topic: str = "Orders", queue_id: int = 0) -> list[int]:
    """Append messages whose bodies have these sizes.  Return the sizes of their records."""
    return [cleaned.store.append([message(topic, queue_id, bytes(size))])[0][2] for size in sizes]


def retain(cleaned: CleanedStore, topic: str = "Orders", **rule: int) -> None:
    """Set only the rule of `topic`, and apply it at once."""
    cleaned.store.cleaner.retain({topic: TopicRule(rule.get("max_age_ms"), rule.get("max_bytes"))})


def test_time_bounds_what_may_be_read_and_only_of_its_topic(cleaned: CleanedStore) -> None:
    for _ in range(5):
        put(cleaned, [1])
        put(cleaned, [1], "Other")
        cleaned.clock.advance(HOUR_S)
    retain(cleaned, max_age_ms=2 * HOUR_MS)
    assert cleaned.range() == (3, 5)
    assert cleaned.range("Other") == (0, 5)
    cleaned.clock.advance(HOUR_S)
    cleaned.clean()
    assert cleaned.range() == (5, 5)
    # The log still holds them, and the queue's files exist.
    assert values(cleaned.store.figures())["commitLogMinOffset"] == "0"
    assert cleaned.queue_files() == [0, 4]


def test_bytes_are_counted_from_the_newest_back(cleaned: CleanedStore) -> None:
    sizes = put(cleaned, [100, 10, 300, 50, 70])
    for most in (sum(sizes), sum(sizes[1:]), sum(sizes[1:]) - 1, sum(sizes[3:]) + 1, sizes[-1], 0):
        retain(cleaned, max_bytes=most)
        kept = cleaned.range()[0]
        assert sum(sizes[kept:]) <= most or kept == 4
        assert kept == 0 or sum(sizes[kept - 1 :]) > most


def test_each_queue_has_the_bound_of_its_own(cleaned: CleanedStore) -> None:
    size = put(cleaned, [10] * 6)[0]
    put(cleaned, [10] * 2, queue_id=1)
    retain(cleaned, max_bytes=3 * size)
    assert (cleaned.range(), cleaned.range(queue_id=1)) == ((3, 6), (0, 2))


def test_the_minimum_never_goes_back(cleaned: CleanedStore) -> None:
    size = put(cleaned, [10] * 6)[0]
    retain(cleaned, max_bytes=2 * size)
    assert cleaned.range() == (4, 6)
    retain(cleaned, max_bytes=6 * size)
    cleaned.clean()
    assert cleaned.range() == (4, 6)
    retain(cleaned)
    cleaned.clean()
    assert cleaned.range() == (4, 6)
    put(cleaned, [10] * 5)
    retain(cleaned, max_bytes=6 * size)
    assert cleaned.range() == (5, 11)


def test_a_restart_computes_it_again(cleaned: CleanedStore) -> None:
    size = put(cleaned, [10] * 9)[0]
    retain(cleaned, max_bytes=2 * size)
    cleaned.reopen(crash=True)
    assert cleaned.range() == (0, 9)
    retain(cleaned, max_bytes=2 * size)
    assert cleaned.range() == (7, 9)


def test_rules_and_the_log_s_own_retention_together(cleaned: CleanedStore) -> None:
    cleaned.fill(3)
    size = put(cleaned, [len(BODY)])[0]
    cleaned.flush()
    retain(cleaned, max_bytes=2 * size)
    assert cleaned.range() == (3 * PER_SEGMENT - 1, 3 * PER_SEGMENT + 1)
    cleaned.disk.log_used = 0.86
    cleaned.clean(turns=20)
    # The log has passed the rule; the count continues from there, over removed files.
    assert cleaned.range() == (3 * PER_SEGMENT, 3 * PER_SEGMENT + 1)
    put(cleaned, [len(BODY)] * 4)
    cleaned.clean()
    assert cleaned.range() == (3 * PER_SEGMENT + 3, 3 * PER_SEGMENT + 5)


def test_the_log_s_own_retention_takes_nothing_back(cleaned: CleanedStore) -> None:
    cleaned.fill(4)
    retain(cleaned, max_bytes=1)
    assert cleaned.range() == (11, 12)
    cleaned.configure(delete_file_batch_max=1)
    cleaned.disk.log_used = 0.86
    cleaned.clean()
    assert cleaned.segments() == [1, 2, 3]
    assert cleaned.range() == (11, 12)


def test_a_count_whose_files_are_gone_starts_again(cleaned: CleanedStore) -> None:
    cleaned.fill(3)
    size = put(cleaned, [len(BODY)])[0]
    retain(cleaned, max_bytes=100 * size)
    cleaned.flush()
    cleaned.disk.log_used = 0.86
    cleaned.clean(turns=20)
    assert cleaned.range() == (9, 10)
    assert cleaned.queue_files() == [8]
    cleaned.disk.log_used = 0.5
    put(cleaned, [len(BODY)] * 5)
    retain(cleaned, max_bytes=4 * size)
    assert cleaned.range() == (11, 15)


def test_a_topic_deleted_and_made_again_is_counted_from_nothing(cleaned: CleanedStore) -> None:
    size = put(cleaned, [10] * 6)[0]
    retain(cleaned, max_bytes=3 * size)
    cleaned.store.delete_topic("Orders")
    put(cleaned, [10] * 2)
    cleaned.clean()
    assert cleaned.range() == (0, 2)


def test_later_rounds_do_not_look_at_everything_again(cleaned: CleanedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    size = put(cleaned, [10] * 200)[0]
    looked: list[int] = []
    sizes_of = topic_retention._sizes

    def counted(units: Any) -> Any:
        looked.append(len(units))
        return sizes_of(units)

    monkeypatch.setattr(topic_retention, "_sizes", counted)
    retain(cleaned, max_bytes=150 * size)
    assert cleaned.range() == (50, 200)
    looked.clear()
    put(cleaned, [10] * 2)
    cleaned.clean()
    assert cleaned.range() == (52, 202)
    # The two new messages, and one file's worth where two were dropped.
    assert sum(looked) <= 2 + 2 * 4
    looked.clear()
    cleaned.clean()
    assert not looked


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.lists(st.integers(0, 400), max_size=12), st.integers(0, 3000)), min_size=1, max_size=6),
    chunk=st.integers(1, 7),
)
def test_any_course_of_appends_and_bounds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[int], int]], chunk: int
) -> None:
    """The minimum is the lowest offset that the limit allows, or its previous value."""
    cleaned = CleanedStore(tmp_path_factory.mktemp("store") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_retention, "_CHUNK", chunk)
        sizes: list[int] = []
        low = 0
        for bodies, most in steps:
            sizes += put(cleaned, bodies)
            retain(cleaned, max_bytes=most)
            while low < len(sizes) - 1 and sum(sizes[low:]) > most:
                low += 1
            assert cleaned.range() == (low, len(sizes))
    cleaned.close()
