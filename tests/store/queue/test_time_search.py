"""Offsets by time, with times that stand still, jump and step back."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.layout import CONSUME_QUEUE_DTYPE
from store.message_store import Boundary
from store.queue.consume_queue import BLANK_SIZE
from store.queue.time_search import offset_by_time
from tests.store.rig import Stores, message
from tests.tiers import examples


def filled(stores: Stores, times: list[int]) -> int:
    """Append one message at each of `times`, ms after the start; return the start."""
    start = stores.clock.wall_ms()
    store = stores.open()
    for now in times:
        stores.clock.step_wall(start + now - stores.clock.wall_ms())
        store.append([message()])
    return start


def test_boundaries_of_equal_and_missing_times(stores: Stores) -> None:
    # The example that RocketMQ gives: t1 t1 t1 t3 t3.
    start = filled(stores, [10, 10, 10, 30, 30])
    (store,) = stores.opened

    def find(time: int) -> tuple[int, int]:
        return tuple(store.offset_by_time("Orders", 0, start + time, b) for b in (Boundary.LOWER, Boundary.UPPER))  # type: ignore[return-value]

    assert find(9) == (0, 0)
    assert find(10) == (0, 2)
    assert find(20) == (3, 2)
    assert find(30) == (3, 4)
    assert find(31) == (5, 4)
    assert store.offset_by_time("Orders", 0, -1) == 0
    assert store.offset_by_time("Orders", 0, 1 << 62) == 5


@settings(max_examples=examples(30), deadline=None)
@given(times=st.lists(st.integers(0, 40), min_size=1, max_size=120), time=st.integers(-2, 42), ordered=st.booleans())
def test_the_answer_stands_between_older_and_newer(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], time: int, ordered: bool
) -> None:
    stores = Stores(tmp_path_factory.mktemp("times"))
    try:
        if ordered:
            times.sort()
        start = filled(stores, times)
        (store,) = stores.opened
        lower = store.offset_by_time("Orders", 0, start + time, Boundary.LOWER)
        upper = store.offset_by_time("Orders", 0, start + time, Boundary.UPPER)
        # Also where times step back: older before it, not older at it.
        assert lower == 0 or times[lower - 1] < time
        assert lower == len(times) or times[lower] >= time
        assert upper == len(times) - 1 or times[upper + 1] > time
        assert upper == 0 or times[upper] <= time
        if ordered:
            assert all(a <= b for a, b in pairwise(times))
            assert lower == sum(t < time for t in times)
            assert upper == max(0, sum(t <= time for t in times) - 1)
    finally:
        stores.close_all()


class _Queue:
    """A queue whose unit k has the time ``times[k]``; None is a blank, -1 a message that the log has given up."""

    def __init__(self, times: list[int | None]) -> None:
        entries = [(0, BLANK_SIZE, 0) if time is None else (at, 1, 0) for at, time in enumerate(times)]
        self._entries = np.array(entries, CONSUME_QUEUE_DTYPE)
        self.times = times

    def visible_units(self) -> tuple[int, int]:
        return 0, len(self.times)

    def offset_of(self, unit: int) -> int:
        return unit

    def unit(self, unit: int) -> tuple[int, int, int]:
        return self._entries[unit].item()  # type: ignore[no-any-return]

    def entries(self, unit: int, count: int) -> npt.NDArray[np.void]:
        return self._entries[unit : unit + count]

    def store_time_at(self, physical_offset: int, size: int) -> int:
        time = self.times[physical_offset]
        assert time is not None
        return time


@settings(max_examples=examples(300), deadline=None)
@given(
    gone=st.integers(0, 5),
    steps=st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=60),
    time=st.integers(0, 60),
    upper=st.booleans(),
)
def test_the_answer_is_that_of_a_linear_search_whatever_is_missing(
    gone: int, steps: list[int | None], time: int, upper: bool
) -> None:
    now, times = 1, [-1] * gone
    for step in steps:
        now += step or 0
        times.append(None if step is None else now)  # type: ignore[arg-type]
    queue = _Queue(times)  # type: ignore[arg-type]
    found = offset_by_time(queue, queue, time, Boundary.UPPER if upper else Boundary.LOWER)  # type: ignore[arg-type]
    there = [(offset, at) for offset, at in enumerate(times) if at is not None]
    if upper:
        # The last that is not newer: nothing but blanks between it and the answer.
        wanted = max((offset for offset, at in there if at <= time), default=0)
        assert all(times[offset] is None for offset in range(wanted + 1, found + 1))
        assert found >= wanted
    else:
        # The first that is not older: a consumer that begins at the answer reads it first.
        wanted = min((offset for offset, at in there if at >= time), default=len(times))
        assert found <= wanted
        assert all(times[offset] is None for offset in range(found, wanted))


def test_messages_that_expired_are_older_than_any_time(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 4096
    start = filled(stores, list(range(200)))
    stores.close(stores.opened[0])
    for path in stores.segments()[:2]:
        path.unlink()
    store = stores.open()
    first = store.min_offset("Orders", 0)
    assert first > 0
    assert store.offset_by_time("Orders", 0, start) == first
    assert store.offset_by_time("Orders", 0, start + first + 7) == first + 7
