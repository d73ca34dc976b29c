"""SIGKILL while topics of first sends are saved: each topic whose first message was acknowledged is there again.

The failpoints are the steps of the replacement of topics.json.  What a power cut leaves of it, `test_power_cut` shows.
"""

import asyncio
import random
import signal
from pathlib import Path

import pytest

from tests.chaos.kills.first_sends import FirstSends
from tests.chaos.load import PROPERTIES, beside
from tests.chaos.nursery import ChaosBroker, Nursery

STEPS = (
    "atomic_file.before_sync",
    "atomic_file.after_temporary",
    "atomic_file.after_backup",
    "atomic_file.after_rename",
)
KILLS = 10
_END_LIMIT_S = 30.0


@pytest.fixture(params=["SYNC_FLUSH", "ASYNC_FLUSH"])
def creating(request: pytest.FixtureRequest, nursery: Nursery, tmp_path: Path) -> ChaosBroker:
    """A broker that saves nothing else beside the topics."""
    seldom = {"flushConsumerOffsetInterval": "60000", "flushDelayOffsetInterval": "60000"}
    return ChaosBroker(nursery, tmp_path, {**PROPERTIES, **seldom, "flushDiskType": request.param})


async def live_and_die(broker: ChaosBroker, sends: FirstSends) -> None:
    """Create topics until the broker dies of its failpoint."""

    async def end() -> None:
        assert await asyncio.to_thread(broker.has_ended, _END_LIMIT_S), "the failpoint was not reached"

    await beside(end(), sends.until_dead(broker.address))
    assert broker.wait() == -signal.SIGKILL


@pytest.mark.timeout(240)
async def test_killed_at_each_step_of_a_save(creating: ChaosBroker) -> None:
    dice, sends = random.Random(5), FirstSends()
    with creating as broker:
        for step in (*STEPS, *STEPS):
            before = len(sends.acknowledged)
            broker.start(f"{step}=kill@{dice.randint(2, 30)}")
            await live_and_die(broker, sends)
            broker.start()
            assert await sends.problems(broker.address) == [], step
            broker.kill()
            assert len(sends.acknowledged) > before, f"{step}: nothing was acknowledged, so this shows nothing"


@pytest.mark.timeout(240)
async def test_killed_at_any_moment(creating: ChaosBroker) -> None:
    dice, sends = random.Random(6), FirstSends()
    with creating as broker:
        for _ in range(KILLS):
            broker.start()

            async def kill_soon() -> None:
                await asyncio.sleep(dice.uniform(0.02, 0.2))
                broker.kill()

            await beside(kill_soon(), sends.until_dead(broker.address))
        broker.start()
        assert await sends.problems(broker.address) == []
        assert len(sends.acknowledged) > KILLS
        assert broker.stop() == 0
