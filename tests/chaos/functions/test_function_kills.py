"""SIGKILL of instances and of the broker under load; `soak` does it for longer."""

from pathlib import Path

import pytest

from tests.chaos.functions.counting import Counted, Event
from tests.chaos.functions.soak import problems_of, soak


@pytest.mark.timeout(180)
async def test_each_input_has_one_effect_whichever_process_is_killed(tmp_path: Path) -> None:
    assert await soak(tmp_path, kills=6, seed=172, many=3, per_s=400, kills_broker=True) == []


def test_the_checker_finds_lost_doubled_and_misplaced_effects() -> None:
    inputs = [Event("a", number) for number in range(4)]
    outputs = [Counted("a", 0, 1, 0), Counted("a", 2, 2, 0), Counted("a", 3, 3, 0)]
    assert problems_of(inputs, outputs, [Event("a", 1)]) == []
    assert problems_of(inputs, outputs, []) == ["Event(key='a', number=1) has no effect"]
    assert problems_of(inputs, outputs, [Event("a", 1)] * 2) == ["('a', 1) has 2 effects"]
    assert "has 2 effects" in problems_of(inputs, [*outputs, outputs[0]], [Event("a", 1)])[0]
    assert problems_of(inputs, [outputs[0], outputs[2], outputs[1]], [Event("a", 1)])
    assert problems_of(inputs, [outputs[0], Counted("a", 2, 1, 0), outputs[2]], [Event("a", 1)])
