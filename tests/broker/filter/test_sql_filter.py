"""Compiled filters: what becomes of those that nobody uses any more."""

import gc

from broker.filter.sql_filter import SqlFilter


def test_a_filter_that_is_dropped_leaves_nothing_to_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            made = SqlFilter(f"a = {number} OR b IN ('x', 'y') AND NOT (c IS NULL OR d CONTAINS 'z')")
            assert made.record_filter().matches(b"a\x01%d\x02" % number)
        del made
        assert gc.collect() == 0
    finally:
        gc.enable()
