"""The long run: ``python -m tests.chaos.functions.soak --kills 200``.

Instances of a function work under load while one of them, or the broker, is killed at random moments, or runs twice.
Then each input has one effect: an output or a dead letter.  Prints a line for each kill; ends with status 1 after a
problem.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

import sprocket
from sprocket import ConsumeFrom, Message
from sprocket.client.send.send_request import SendSettings
from sprocket.common.processes.child_process import ChildProcess, bound
from sprocket.functions.deployments import create_registry, create_topics, described
from sprocket.functions.instance import InstanceArguments
from sprocket.functions.package import pack
from sprocket.testing import Broker
from tests.chaos.functions.counting import Counted, Event

T = TypeVar("T")
KEYS = 16
_STUCK_S = 90.0
_readers = count()
SOURCE = Path(__file__).with_name("counting.py")


class Instances:
    """Processes of instances, which may be killed."""

    def __init__(self, folder: Path, namesrv: str, many: int) -> None:
        self._code = folder / "code.zip"
        self.module, package = pack(SOURCE)
        self._code.write_bytes(package)
        self._folder, self._namesrv = folder, namesrv
        self._children = [self._child(index) for index in range(many)]

    def _child(self, index: int) -> ChildProcess:
        given = InstanceArguments("counting", str(self._code), self.module, 1, "here", index, 0, 0, 0)
        arguments = msgspec.json.encode(given).decode()
        command = bound("sprocket_cli", "function", "instance", "-n", self._namesrv, arguments)
        return ChildProcess(f"i{index}", command, self._folder)

    def start(self, index: int) -> None:
        """Start one; it is ready some time later."""
        self._children[index].launch()

    def end(self, index: int, how: signal.Signals) -> None:
        """End one."""
        self._children[index].end(how)

    def revive(self) -> None:
        """Start those again that have ended by themselves: one that starts while the broker is down does so."""
        for child in self._children:
            if child.exit_status is not None:
                child.end(signal.SIGTERM)
                child.launch()

    async def double(self, index: int, pause_s: float) -> None:
        """Start another process as this instance, which owns what the first one owns; kill the first one later."""
        first, self._children[index] = self._children[index], self._child(index)
        self.start(index)
        await asyncio.sleep(pause_s)
        await asyncio.to_thread(first.end, signal.SIGKILL)

    def __len__(self) -> int:
        return len(self._children)


async def feed(mq: sprocket.Connection, stop: asyncio.Event, per_s: int) -> int:
    """Send inputs, each once, until `stop`; return how many there are."""
    numbers = [0] * KEYS
    # A broker that was killed may start slowly on a busy machine.  It knows ids for 10 minutes.
    settings = SendSettings(idempotent=True, send_msg_timeout_s=300.0, retry_times_when_send_failed=1000)
    producer = mq.producer(settings=settings)
    while not stop.is_set():
        for key in range(KEYS):
            event = Event(f"k{key}", numbers[key])
            name = f"{event.key}/{event.number}"
            message = Message("Events", msgspec.json.encode(event), unique_key=name)
            await producer.send(message, sharding_key=event.key)
            numbers[key] += 1
        await asyncio.sleep(KEYS / per_s)
    return sum(numbers)


async def all_of(mq: sprocket.Connection, topic: str, kind: type[T], many: int, quiet_s: float) -> list[T]:
    """Return the values of a topic: `many`, and what comes within `quiet_s` after them."""
    found: list[T] = []
    group = f"reader-{next(_readers)}"
    async with mq.topic(topic, kind).consume(group, consume_from=ConsumeFrom.FIRST) as consumer:
        while True:
            try:
                async with asyncio.timeout(quiet_s if len(found) >= many else 120):
                    found.append(await anext(consumer))
            except TimeoutError:
                return found


def problems_of(inputs: list[Event], outputs: list[Counted], dead: list[Event]) -> list[str]:
    """Return what contradicts that each input has one effect, and that the state has those of all outputs."""
    effects = Counter([(one.key, one.number) for one in outputs] + [(one.key, one.number) for one in dead])
    problems = [f"{place} has {times} effects" for place, times in effects.items() if times > 1]
    problems += [f"{one} has no effect" for one in inputs if (one.key, one.number) not in effects]
    for key in {one.key for one in inputs}:
        own = [one for one in outputs if one.key == key]
        if [one.count for one in own] != list(range(1, len(own) + 1)):
            problems.append(f"{key}: outputs count {[one.count for one in own]}")
        if [one.number for one in own] != sorted({one.number for one in own}):
            problems.append(f"{key}: outputs are not in the order of the inputs")
    return problems


async def soak(folder: Path, kills: int, seed: int, many: int, per_s: int, *, kills_broker: bool) -> list[str]:
    """Kill so many times; return the problems."""
    dice, began = random.Random(seed), time.monotonic()
    with Broker(folder / "broker", properties={"flushDiskType": "SYNC_FLUSH"}) as broker:
        for topic in ("Events", "Counted"):
            broker.create_topic(topic, 4)
        instances = Instances(folder, broker.namesrv, many)
        async with sprocket.connect(broker.namesrv) as mq:
            await create_registry(mq.admin)
            await create_topics(mq.admin, described(pack(SOURCE)[1], instances.module))
            for index in range(many):
                instances.start(index)
            stop = asyncio.Event()
            feeding = asyncio.create_task(feed(mq, stop, per_s))
            try:
                await all_of(mq, "Counted", Counted, 1, 0)  # it works
                for number in range(kills):
                    await asyncio.sleep(dice.uniform(0.1, 1.5))
                    instances.revive()
                    victim, how = dice.randrange(many), dice.choices(("killed", "doubled", "broker"), (4, 2, 1))[0]
                    if how == "broker" and kills_broker:
                        await asyncio.to_thread(broker.kill)
                        await asyncio.to_thread(broker.start)
                    elif how == "doubled":
                        await instances.double(victim, dice.uniform(1, 4))
                    else:
                        await asyncio.to_thread(instances.end, victim, signal.SIGKILL)
                        instances.start(victim)
                    print(f"{number + 1}: {victim} {how} after {time.monotonic() - began:.0f} s", flush=True)
                stop.set()
                sent = await feeding
                inputs = await all_of(mq, "Events", Event, sent, 1.0)
                outputs, dead = await effects(mq, len(inputs), instances.revive)
            finally:
                feeding.cancel()
                for index in range(many):
                    instances.end(index, signal.SIGTERM)
    print(f"sent={sent} inputs={len(inputs)} outputs={len(outputs)} dead_letters={len(dead)}", flush=True)
    problems = problems_of(inputs, outputs, dead)
    return problems if len(inputs) == sent else [*problems, f"{sent} sent, but {len(inputs)} inputs"]


async def effects(
    mq: sprocket.Connection, many: int, look: Callable[[], None]
) -> tuple[list[Counted], list[Event]]:  # fmt: skip
    """Return outputs and dead letters, when they are `many` together, and what comes after them."""
    numbers, moved_at = [0, 0], time.monotonic()
    while time.monotonic() - moved_at < _STUCK_S:
        tables = [(await mq.admin.topic_stats(topic)).offset_table for topic in ("Counted", "%DLQ%counting")]
        before, numbers = numbers, [sum(one.max_offset for one in table.values()) for table in tables]
        if numbers != before:
            moved_at = time.monotonic()
        if sum(numbers) >= many:
            outputs = await all_of(mq, "Counted", Counted, numbers[0], 2.0)
            return outputs, await all_of(mq, "%DLQ%counting", Event, numbers[1], 1.0)
        look()
        await asyncio.sleep(0.2)
    raise AssertionError(f"{many} inputs, and for {_STUCK_S:g} s no more than {numbers} outputs and dead letters")


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.functions.soak")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--per-s", type=int, default=400)
    parser.add_argument("--spare-broker", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(
            soak(
                Path(folder), given.kills, given.seed, given.instances, given.per_s, kills_broker=not given.spare_broker
            )
        )
    print("\n".join(problems[:20]) or "no problem")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
