"""How fast an application settles messages."""

import pytest

pytest.importorskip("kombu", reason="kombu is not installed: pip install 'sprocket-mq[celery]'")

from sprocket.contrib.kombu.pace import Pace
from tests.clock import ManualClock


def _counted(clock: ManualClock, count: int) -> Pace:
    pace = Pace(clock.monotonic)
    for _ in range(count):
        pace.add()
    return pace


def test_a_slow_application_has_no_pace() -> None:
    assert _counted(ManualClock(), 3).recent() == 0


def test_a_fast_application_has_the_pace_of_its_last_moments() -> None:
    clock = ManualClock()
    pace = _counted(clock, 30)
    assert pace.recent() == 30
    clock.advance(0.01)
    assert pace.recent() == 30
    clock.advance(0.01)
    assert pace.recent() == 0
