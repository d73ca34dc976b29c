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
        await site.make(TOPIC, "static", queues=3)
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
        assert {queue for _, queue in traffic.places} == set(range(9))


@pytest.mark.parametrize("kind", ["plain", "ordered", "static"])
@pytest.mark.timeout(300)
async def test_a_topic_grows_and_keys_keep_their_order_whoever_is_killed(
    nursery: Nursery, tmp_path: Path, kind: str
) -> None:
    async with MovingSite(nursery, tmp_path) as site:
        await site.make(TOPIC, kind, queues=2)
        traffic = OrderedTraffic(TOPIC, site.namesrv)
        async with traffic.running():
            await traffic.progress(5)
            # Without a broker, keys of a plain topic choose from fewer queues, as with RocketMQ.
            victims = iter((["tool"] if kind == "plain" else [*BROKERS, "tool"]) * 20)
            for step, queues in enumerate(range(3, 11), 1):
                grow = ("topic", "grow", TOPIC, "--queues", str(queues * (3 if kind == "static" else 1)))
                await site.done(*grow, "--settle", "1", on_line=killing(site, next(victims), step % 6 + 1))
                assert await site.queues(TOPIC) == queues * 3
                assert await site.attributes(TOPIC, "sharding.queues") == set()
                await traffic.progress(3)
        assert traffic.problems == []
        assert len(traffic.places) > 12  # keys have used old and new queues
