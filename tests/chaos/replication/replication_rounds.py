"""Faults of the nodes and links of a pair, one after the other, under load."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tests.chaos.load import TOPIC, Load
from tests.chaos.replication.fault_proxy import Way
from tests.chaos.replication.pair import ChaosPair, Node

Fault = Callable[[ChaosPair, float], Awaitable[None]]
_ONCE_MORE: Final = 50
_PROGRESS_LIMIT_S: Final = 60.0
# A slave that is away is soon out of the set, and a send does not wait long for it.
QUICK_TO_JUDGE: Final = {"slaveTimeout": "300", "haMaxTimeSlaveNotCatchup": "1000"}


async def lose_masters(pair: ChaosPair, load: Load, rounds: int, seed: int) -> None:
    """Lose the master with its disk several times: the other node goes on, and the lost one starts empty as its slave.

    SYNC_MASTER: nothing is lost that was answered SEND_OK.  ASYNC_MASTER: what is lost is the end of the log, no more
    than the slave lacked before.
    """
    dice = random.Random(seed)
    is_sync = pair.role == "SYNC_MASTER"
    for number in range(rounds):
        where = f"seed {seed}, round {number}"
        await pair.await_topic(TOPIC)
        await load.sends(pair.master.direct, 200)
        if is_sync:
            pair.master.ha.delay(dice.uniform(0.0, 0.02), dice.choice((Way.THERE, Way.BACK)))
        elif number % 2 == 0:
            pair.master.ha.stall(Way.BACK)
            await load.sends(pair.master.direct, dice.randrange(1, 200))
        sending = asyncio.ensure_future(load.until_dead(pair.master.direct, others=False))
        await asyncio.sleep(dice.uniform(0.0, 0.3))
        before = await pair.lag()
        pair.master.kill()
        await sending
        pair.master.lose_disk()
        end = await pair.promote()
        assert end >= before.acked, f"{where}: the slave had {before.acked}, and ends at {end}"
        if not is_sync:
            load.forget_from(end)
        assert await load.problems(pair.master.direct, whole=True) == [], where
        for node in (pair.master, pair.slave):
            node.ha.heal()
        pair.slave.start_as("SLAVE")
        await pair.await_caught_up()


async def bad_weather(pair: ChaosPair, load: Load, seed: int, *, longest_s: float = 1.5, rounds: int = 1) -> list[str]:
    """Every fault, in an order that `seed` gives, under load: after each all goes on by itself.

    Returns what happened.  Raises AssertionError if something was lost, or does not go on.
    """
    dice = random.Random(seed)
    happened = []
    for _ in range(rounds):
        for name in dice.sample(sorted(FAULTS), len(FAULTS)):
            sending = asyncio.ensure_future(load.until_dead(pair.master.direct, others=False))
            await _go_on(pair, load, sending, f"seed {seed}, before {name}")
            happened.append(name)
            await FAULTS[name](pair, dice.uniform(longest_s / 3, longest_s))
            await _go_on(pair, load, sending, f"seed {seed}, after {', '.join(happened)}")
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    assert await load.problems(pair.master.direct, whole=True) == [], f"seed {seed}: {happened}"
    await pair.assert_same_log()
    return happened


async def _go_on(pair: ChaosPair, load: Load, sending: "asyncio.Future[None]", when: str) -> None:
    """Sends are answered SEND_OK again; with SYNC_MASTER and a slave, that is the slave's word too."""
    loop = asyncio.get_running_loop()
    goal, deadline = load.acknowledged + _ONCE_MORE, loop.time() + _PROGRESS_LIMIT_S
    while load.acknowledged < goal:
        assert not sending.done(), f"{when}: {sending.exception()!r}\n{pair.logs()}"
        assert loop.time() < deadline, f"{when}: no send is acknowledged\n{pair.logs()}"
        await asyncio.sleep(0.01)


async def _slave_killed(pair: ChaosPair, seconds: float) -> None:
    pair.slave.kill()
    await asyncio.sleep(seconds)
    pair.slave.start_as("SLAVE")


async def _slave_stopped(pair: ChaosPair, seconds: float) -> None:
    pair.slave.stop()
    await asyncio.sleep(seconds)
    pair.slave.start_as("SLAVE")


def _paused(node_of: Callable[[ChaosPair], Node]) -> Fault:
    async def fault(pair: ChaosPair, seconds: float) -> None:
        node = node_of(pair)
        node.pause()
        await asyncio.sleep(seconds)
        node.go_on()

    return fault


def _link(change: Callable[[ChaosPair], None]) -> Fault:
    async def fault(pair: ChaosPair, seconds: float) -> None:
        change(pair)
        await asyncio.sleep(seconds)
        for node in (pair.master, pair.slave):
            node.ha.heal()
            node.requests.heal()

    return fault


def _all_down(pair: ChaosPair) -> None:
    pair.master.ha.stall()
    pair.master.requests.stall()


FAULTS: Final[Mapping[str, Fault]] = {
    "the slave is killed": _slave_killed,
    "the slave is stopped": _slave_stopped,
    "the slave stands still": _paused(lambda pair: pair.slave),
    "the master stands still": _paused(lambda pair: pair.master),
    "the link is slow": _link(lambda pair: pair.master.ha.delay(0.05)),
    "nothing passes to the slave": _link(lambda pair: pair.master.ha.stall(Way.BACK)),
    "nothing passes from the slave": _link(lambda pair: pair.master.ha.stall(Way.THERE)),
    "nothing passes at all": _link(_all_down),
    "the link is cut": _link(lambda pair: pair.master.ha.cut()),
    "the link is half open": _link(lambda pair: pair.master.ha.half_open()),
}
