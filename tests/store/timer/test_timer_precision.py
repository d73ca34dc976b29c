"""A wheel that is started with a precision other than the one it was written with."""

from pathlib import Path

import pytest

from tests.store.timer.test_timer_files import BEGIN, Rig, put


@pytest.mark.parametrize(("before_ms", "after_ms"), [(100, 1000), (100, 500), (200, 1000), (1000, 100), (500, 200)])
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, before_ms: int, after_ms: int) -> None:
    rig = Rig(tmp_path, timer_precision_ms=before_ms)
    for number in range(30):
        put(rig.store, number, due_ms=(BEGIN + 100 * number) // before_ms * before_ms)
    rig.work()
    rig.stores.clock.advance(1.45)
    rig.work()
    came = rig.came()
    assert came
    rig.stop()
    rig.stores.fields["timer_precision_ms"] = after_ms
    rig.stores.clock.advance(1)
    rig.open()
    rig.work()
    rig.stores.clock.advance(10)
    rig.work()
    assert sorted(rig.came()) == list(range(30))
    rig.stop()
