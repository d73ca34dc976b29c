"""Small scripts of sends, recalls, time, jumps of the clock, restarts and crashes, each from a seed."""

import pytest

from tests.store.timer import wheel_run
from tests.store.timer.wheel_run import WheelRun

_GROUPS = 20
_SEEDS = 10


@pytest.mark.parametrize("group", range(_GROUPS))
def test_nothing_comes_early_or_twice_or_never_however_the_clock_jumps(
    group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = {kind: weight for kind, weight in wheel_run._STEPS.items() if kind not in ("kill", "power_cut")}
    monkeypatch.setattr(wheel_run, "_STEPS", calm)
    for seed in range(group * _SEEDS, (group + 1) * _SEEDS):
        run = WheelRun(seed).play(40).finish()
        assert run.problems == [], seed
        assert run.counts.get(wheel_run.REAL_TOPIC, 0) == 0, seed
        run.timer.close()
        run.store.shutdown()
