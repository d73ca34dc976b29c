"""Old objects leave the full garbage collections, and cycles among them are found all the same."""

import gc
import weakref
from collections.abc import Iterator
from itertools import count

import pytest

from sprocket_cli.server.long_lived import LongLived


@pytest.fixture(autouse=True)
def only_the_test_collects() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.disable()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


class _SlowClock:
    """Each reading is a second later, so a search takes 1 s."""

    def __init__(self) -> None:
        self._seconds = count()

    def monotonic(self) -> float:
        return float(next(self._seconds))

    def wall_ms(self) -> int:
        raise NotImplementedError


class _Node:
    def __init__(self) -> None:
        self.me = self


def _old(count: int) -> list[list[object]]:
    found: list[list[object]] = [[] for _ in range(count)]
    gc.collect()
    return found


def test_old_objects_are_frozen_when_there_are_many() -> None:
    objects = LongLived(max_objects=1000)
    few = _old(100)
    objects.look()
    assert any(one is few[0] for one in gc.get_objects(generation=2))
    many = _old(1000)
    objects.look()
    assert not any(one is many[0] for one in gc.get_objects(generation=2))


def test_cycles_among_frozen_objects_are_found_when_these_have_doubled() -> None:
    objects = LongLived(max_objects=1000)
    first = gc.get_freeze_count()
    node = _Node()
    lost, kept = weakref.ref(node), [_old(1500)]
    objects.look()
    del node
    gc.collect()
    assert lost() is not None
    kept.append(_old(first))
    objects.look()
    assert lost() is None
    assert gc.get_freeze_count() > first + 1500


def test_cycles_are_found_when_frozen_objects_have_doubled_since_they_were_fewest() -> None:
    many = _old(2 * len(gc.get_objects()))
    objects = LongLived(max_objects=1000)
    first = gc.get_freeze_count()
    del many
    few = [_old(1500)]
    objects.look()
    left = gc.get_freeze_count()
    node = _Node()
    lost = weakref.ref(node)
    few.append(_old(1500))
    objects.look()
    del node
    few.append(_old(left))
    objects.look()
    assert lost() is None
    assert gc.get_freeze_count() < first


def test_long_searches_are_rare_and_come_when_memory_demands_it() -> None:
    objects = LongLived(max_objects=1000, clock=_SlowClock())
    kept = [_old(gc.get_freeze_count() + 1000)]
    objects.look()
    searched = gc.get_freeze_count()
    node = _Node()
    lost = weakref.ref(node)
    kept.append(_old(1500))
    objects.look()
    del node
    kept.append(_old(2 * searched))
    objects.look()
    assert lost() is not None  # the search before took a second, and 1,000 have not passed
    kept.append(_old(6 * searched))
    objects.look()
    assert lost() is None


def test_cycles_among_few_old_objects_are_freed() -> None:
    objects = LongLived(max_objects=1000)
    node = _Node()
    lost = weakref.ref(node)
    _old(10)
    del node
    objects.look()
    assert lost() is None


def test_no_full_collection_starts_by_itself() -> None:
    LongLived()
    gc.enable()
    before = gc.get_stats()[2]["collections"]
    for _ in range(50):
        kept = [[] for _ in range(20_000)]
        kept.clear()
    assert gc.get_stats()[2]["collections"] == before
