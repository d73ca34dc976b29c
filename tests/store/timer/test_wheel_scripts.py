"""Short seeded scripts of sends, recalls, time, jumps of the clock, restarts and crashes."""

import pytest

from tests.store.timer import wheel_run
from tests.store.timer.wheel_run import WheelRun
from tests.tiers import seeds

_STEPS = 24
_SEEDS = 10


@pytest.mark.parametrize("group", seeds(20))
def test_nothing_comes_early_or_twice_or_never_however_the_clock_jumps(
    group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = {kind: weight for kind, weight in wheel_run.STEPS.items() if kind not in wheel_run.CRASHES}
    calm["jump"] = 8
    monkeypatch.setattr(wheel_run, "STEPS", calm)
    for seed in range(group * _SEEDS, (group + 1) * _SEEDS):
        run = WheelRun(seed).play(_STEPS).finish()
        assert run.problems == [], seed
        assert run.counts.get(wheel_run.REAL_TOPIC, 0) == 0, seed
        run.close()


# The first seeds: slots that lost their newest units, and slots before a step of the clock that was lost.
@pytest.mark.parametrize("seed", [17, 25, 30, 34, 170, 254, *[1000 + number for number in seeds(14)]])
def test_nothing_is_lost_or_early_over_crashes(seed: int) -> None:
    run = WheelRun(seed).play(40).finish()
    assert run.problems == []
    run.close()


@pytest.mark.slow
@pytest.mark.parametrize("group", range(20))
def test_many_more_crashes(group: int) -> None:
    for seed in range(5_000 + group * 100, 5_100 + group * 100):
        run = WheelRun(seed, sync_flush=seed % 2 == 0).play(40).finish()
        assert run.problems == [], seed
        run.close()
