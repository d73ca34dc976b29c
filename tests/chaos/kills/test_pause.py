"""A broker that stands still for a while, as under a hypervisor that gives it no time."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.load import PROPERTIES, Load
from tests.chaos.nursery import ChaosBroker, Nursery

MIB = 1 << 20
PAUSE_S = 1.5
SENDERS = 200
# What so many senders can have under way, twenty times over.
GROWTH_LIMIT = 16 * MIB


@pytest.mark.timeout(300)
async def test_nothing_is_lost_and_queues_stay_bounded(nursery: Nursery, tmp_path: Path) -> None:
    load = Load(outstanding=SENDERS)
    # Shorter than a pause: what waits for a sync then is answered FLUSH_DISK_TIMEOUT.
    with ChaosBroker(nursery, tmp_path, {**PROPERTIES, "syncFlushTimeout": "500"}) as broker:
        broker.start()
        await load.prepare(broker.address)
        await load.sends(broker.address, 1000)
        before = broker.anonymous_bytes()
        work = asyncio.ensure_future(load.until_dead(broker.address, others=False))
        for _ in range(3):
            await asyncio.sleep(0.3)
            broker.pause()
            acknowledged = -1
            while load.acknowledged > acknowledged:  # for what it answered before
                acknowledged = load.acknowledged
                await asyncio.sleep(0.2)
            await asyncio.sleep(PAUSE_S)
            assert load.acknowledged == acknowledged
            broker.go_on()
            while load.acknowledged < acknowledged + SENDERS:
                assert not work.done()
                await asyncio.sleep(0.01)
        grown = broker.anonymous_bytes() - before
        broker.kill()
        await work
        broker.start()
        assert await load.problems(broker.address, whole=True) == []
    assert grown < GROWTH_LIMIT, f"{grown / MIB:.1f} MiB"
