"""Compiled filters: what becomes of those that nobody uses any more."""

import gc

from broker.filter.sql_filter import SqlFilter
from store.queue.record_filter import RecordFilter


def _filters() -> int:
    return sum(type(one) in {SqlFilter, RecordFilter} for one in gc.get_objects())


def test_a_filter_that_is_dropped_leaves_nothing_to_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        before = _filters()
        for number in range(20):
            made = SqlFilter(f"a = {number} OR b IN ('x', 'y') AND NOT (c IS NULL OR d CONTAINS 'z')")
            assert made.record_filter().matches(b"a\x01%d\x02" % number)
        assert _filters() > before
        del made
        assert _filters() == before
    finally:
        gc.enable()
