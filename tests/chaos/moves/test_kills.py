"""SIGKILL of a broker or of the tool in every step of a drain, of a join and of growth, under ordered traffic."""

from itertools import count
from pathlib import Path

import pytest

from tests.chaos.moves.site import BROKERS, MovingSite, OnLine
from tests.chaos.moves.traffic import OrderedTraffic
from tests.chaos.nursery import Nursery

TOPIC = "Orders"
_DRAIN = ("broker", "drain", "broker-b", "--settle", "0")
_JOIN = ("broker", "join", "broker-b")


def killing(site: MovingSite, victim: str, at: int) -> OnLine:
    """Kill a broker, or the tool, when the tool has printed so many lines."""

    async def on_line(number: int) -> bool:
        if number != at or victim == "tool":
            return number == at
        await site.kill_and_start(victim)
        return False

    return on_line


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.timeout(300)
async def test_a_broker_is_drained_and_joins_again_whoever_is_killed(
    nursery: Nursery, tmp_path: Path, *, exact: bool
) -> None:
    how = ("--exact-offsets",) if exact else ()
    async with MovingSite(nursery, tmp_path) as site:
        plan = await site.topics.creation(TOPIC, 9, BROKERS, {})
        await site.topics.create(TOPIC, plan)
        traffic = OrderedTraffic(TOPIC, site.namesrv)
        async with traffic.running():
            await traffic.progress(5)
            victims = iter([*BROKERS, "tool"] * 20)
            steps = count(1)
            for _ in range(6):
                said = await site.done(*_DRAIN, *how, on_line=killing(site, next(victims), next(steps) % 5 + 1))
                assert said[-1].startswith("Broker broker-b is drained")
                assert set((await site.leaders(TOPIC)).values()) == {"broker-a", "broker-c"}
                await traffic.progress(3)
                await site.done(*_JOIN, *how, on_line=killing(site, next(victims), next(steps) % 6 + 1))
                led = list((await site.leaders(TOPIC)).values())
                assert {name: led.count(name) for name in BROKERS} == dict.fromkeys(BROKERS, 3)
                await traffic.progress(3)
        assert traffic.problems == []
        assert traffic.queues == set(range(9))
