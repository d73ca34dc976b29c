"""Sweeps of the long run that need two nodes: see `tests.chaos.soak`."""

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from tests.chaos.load import Load
from tests.chaos.nursery import Nursery
from tests.chaos.replication.pair import ChaosNameServers, ChaosPair
from tests.chaos.replication.replication_rounds import FAULTS, QUICK_TO_JUDGE, bad_weather, lose_masters

Counts = Mapping[str, int]
_LIMIT_S: Final = 600.0
_LOSSES: Final = 8
_SMALL_SEGMENTS: Final = {"mappedFileSizeCommitLog": str(256 * 1024)}


def lost_masters(role: str) -> Callable[[int], Counts]:
    """Masters that are lost with their disk, one after the other."""

    def run(seed: int) -> Counts:
        load = Load()
        _play(role, load, _SMALL_SEGMENTS, lambda pair: lose_masters(pair, load, _LOSSES, seed))
        return {"masters lost": _LOSSES, "acknowledged": load.acknowledged}

    return run


def weather(role: str) -> Callable[[int], Counts]:
    """Every fault of nodes and links; in one of four runs the longest takes up to a minute."""

    def run(seed: int) -> Counts:
        load = Load()
        dice = random.Random(seed)
        # Long ones with RocketMQ's times, so that they are over the housekeeping interval in some cases only.
        longest_s, properties = (60.0, {}) if dice.random() < 0.25 else (dice.uniform(1.0, 6.0), QUICK_TO_JUDGE)

        async def storm(pair: ChaosPair) -> None:
            await bad_weather(pair, load, seed, longest_s=longest_s)
            await lose_masters(pair, load, 1, seed)

        _play(role, load, properties, storm)
        undecided = load.undecided.total()
        return {"faults": len(FAULTS), "masters lost": 1, "acknowledged": load.acknowledged, "not SEND_OK": undecided}

    return run


def _play(role: str, load: Load, properties: Mapping[str, str], rounds: Callable[[ChaosPair], Awaitable[None]]) -> None:
    async def run(directory: Path) -> None:
        with (
            Nursery() as nursery,
            ChaosNameServers(nursery, directory) as name_servers,
            ChaosPair(nursery, directory / "pair", name_servers.addresses, role, properties) as pair,
        ):
            await pair.start()
            await load.prepare(pair.master.direct)
            await asyncio.wait_for(rounds(pair), _LIMIT_S)

    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        asyncio.run(run(Path(name)))
