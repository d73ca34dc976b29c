"""The long run: ``python -m tests.chaos.moves.soak --kills 50``.

Drains, joins and growth of a static topic in turn, with a kill of a broker or of the tool at a random line of each,
under ordered traffic.  Prints a line for each kill; ends with status 1 at the first problem.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.moves.site import BROKERS, MovingSite
from tests.chaos.moves.test_kills import TOPIC, killing
from tests.chaos.moves.traffic import OrderedTraffic
from tests.chaos.nursery import Nursery


async def soak(folder: Path, kills: int, seed: int) -> int:
    """Kill so many times; return the number of problems."""
    dice, began, queues = random.Random(seed), time.monotonic(), 6
    with Nursery() as nursery:
        async with MovingSite(nursery, folder, flush=dice.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))) as site:
            await site.make(TOPIC, "static", queues=queues // len(BROKERS))
            traffic = OrderedTraffic(TOPIC, site.namesrv)
            async with traffic.running():
                await traffic.progress(3)
                for number in range(kills):
                    broker, how = dice.choice(BROKERS), dice.choice(((), ("--exact-offsets",)))
                    kind = ("drain", "join", "grow")[number % 3]
                    if kind == "grow":
                        queues += dice.randint(1, 3)
                        command: tuple[str, ...] = ("topic", "grow", TOPIC, "--queues", str(queues), "--settle", "1")
                    else:
                        command = ("broker", kind, broker, *how, *(("--settle", "0") if kind == "drain" else ()))
                    victim, line = dice.choice((*BROKERS, "tool")), dice.randint(1, 7)
                    await site.done(*command, on_line=killing(site, victim, line))
                    led = await site.leaders(TOPIC)
                    assert sorted(led) == list(range(queues))
                    assert kind != "drain" or broker not in led.values()
                    await traffic.progress(2)
                    seconds = time.monotonic() - began
                    print(f"{number + 1}: {' '.join(command)}; {victim} at line {line}; {seconds:.0f} s", flush=True)
            sent = sum(traffic.acknowledged.values()) + len(traffic.acknowledged)
            print(f"acknowledged={sent} problems={traffic.problems}")
            return len(traffic.problems)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.moves.soak")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        return 1 if asyncio.run(soak(Path(folder), arguments.kills, arguments.seed)) else 0


if __name__ == "__main__":
    sys.exit(main())
