"""Power cuts under a real broker on a real ext4; see `tests.chaos.disks.power_cut`."""

from typing import Any

import pytest

from tests.chaos.disks.mounted import run_mounted


def cut_power(flush: str, cycles: int, seed: int) -> dict[str, Any]:
    arguments = ("--flush", flush, "--cycles", str(cycles), "--seed", str(seed))
    outcome = run_mounted("tests.chaos.disks.power_cut", *arguments)
    assert outcome["problems"] == []
    assert outcome["cuts"] == cycles
    assert outcome["acknowledged"] > 10 * cycles, "hardly a send was acknowledged: the test shows nothing"
    assert outcome["topics"] > cycles // 5, "hardly a first send was acknowledged"
    return outcome


@pytest.mark.timeout(240)
def test_sync_flush_loses_nothing_that_was_acknowledged() -> None:
    assert cut_power("SYNC_FLUSH", 50, seed=1)["lost"] == 0


@pytest.mark.timeout(240)
def test_async_flush_loses_the_last_interval_at_most_and_leaves_no_holes() -> None:
    # A cut after several intervals reports each message as a problem that was acknowledged before them and is lost.
    assert cut_power("ASYNC_FLUSH", 20, seed=2)["settled"] >= 3
