"""SIGKILL of a broker at random points under load with SYNC_FLUSH: nothing acknowledged is lost.

The recorded total comes from `tests.chaos.soak`.  SIGKILL leaves the page cache, so this shows recovery and the order
of acknowledgements; what a power cut leaves, `test_power_cut` shows.
"""

import asyncio
import random

import pytest

from tests.chaos.load import Load, beside
from tests.chaos.nursery import ChaosBroker
from tests.tiers import is_quick

ROUNDS = 10 if is_quick() else 100
CHECK_EVERY = 10


async def kill_rounds(broker: ChaosBroker, rounds: int, seed: int) -> Load:
    """Kill and start again so many times, at moments that `seed` gives; the load, with all its acknowledgements."""
    dice = random.Random(seed)
    load = Load()

    async def kill_soon() -> None:
        await asyncio.sleep(dice.choice((dice.uniform(0.0, 0.05), dice.uniform(0.05, 0.4))))
        broker.kill()

    for number in range(rounds):
        broker.start()
        if number == 0:
            await load.prepare(broker.address)
        if number % CHECK_EVERY == 0:
            assert await load.problems(broker.address) == [], f"seed {seed}, round {number}"
        await beside(kill_soon(), load.until_dead(broker.address))
    broker.start()
    assert load.acknowledged > rounds, "hardly a send was acknowledged: the test shows nothing"
    assert await load.problems(broker.address, whole=True) == [], f"seed {seed}, at the end"
    assert await load.await_delayed(broker.address) == [], f"seed {seed}, delayed messages"
    return load


@pytest.mark.timeout(300)
async def test_sigkill_under_load(broker: ChaosBroker) -> None:
    await kill_rounds(broker, ROUNDS, seed=3)
    assert broker.stop() == 0
