"""Power cuts under a broker on a real ext4: ``unshare -m python -m tests.chaos.disks.power_cut --cycles 50``.

A cut: the broker is stopped in the middle of its work, the disk's image is copied, and it goes on.  What the copy holds
is what a power cut at that moment would have left.  The copy is mounted, which replays the file system's journal, and
the store in it is recovered and compared with what was acknowledged by then.  Before a cut the kernel may have been
made to write some of the pages that no sync covers yet.  Now and then the broker is killed and goes on with the same
disk, or with the copy, so that recoveries build on recoveries.

Prints one line of JSON.  Status 77: this machine does not allow mounts.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from tests.chaos.disks.loop_disk import SKIPPED, CannotMount, LoopDisk, mount_tmpfs, unmount_all
from tests.chaos.disks.offline import Content, read_store
from tests.chaos.kills.first_sends import FirstSends
from tests.chaos.load import PROPERTIES, TOPIC, Load
from tests.chaos.nursery import ChaosBroker, Nursery
from tests.chaos.queue_checker import QueueChecker

FLUSH_INTERVAL_MS: Final = 200
# More than the fastest machine sends in all cycles; only what is written takes memory.
_IMAGE_MIB: Final = 384
_TMPFS_MIB: Final = 2048
# ASYNC_FLUSH: what is flushed now and then is flushed so often, whether or not it is much.
_ASYNC: Final = {
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": str(FLUSH_INTERVAL_MS),
    "flushCommitLogThoroughInterval": str(FLUSH_INTERVAL_MS),
}
# Every fifth cut comes after so many intervals, in which a flush must have happened.  One turn of the flush takes one
# interval; the others are for a machine that is busy with other tests.
_SETTLING_INTERVALS: Final = 10
_SETTLED_EVERY: Final = 5
_KILL_SHARE: Final = 0.1
_GENERATION_SHARE: Final = 0.15


@dataclass
class Outcome:
    """What a run did and found."""

    seed: int
    flush: str
    cuts: int = 0
    kills: int = 0
    # Lives that went on from a copy.
    generations: int = 0
    acknowledged: int = 0
    # Topics of acknowledged first sends.
    topics: int = 0
    # ASYNC_FLUSH: cuts after intervals in which what was acknowledged before must have been flushed.
    settled: int = 0
    # ASYNC_FLUSH: acknowledged messages that a cut took, and the age of the oldest of them at its cut.  The age counts
    # earlier cuts, during which the broker stood still.
    lost: int = 0
    oldest_lost_s: float = 0.0
    problems: list[str] = field(default_factory=list)


class PowerCuts:
    """One run."""

    def __init__(self, directory: Path, nursery: Nursery, flush: str, seed: int) -> None:
        self._directory = directory
        self._nursery = nursery
        self._is_sync = flush == "SYNC_FLUSH"
        self._dice = random.Random(seed)
        self.outcome = Outcome(seed, flush)
        self._load = Load()
        # Acknowledged messages before this physical offset must survive the next cut with ASYNC_FLUSH, too.
        self._flushed_end = 0
        # Slow, because every topic has directories and files of its own.
        self._first_sends = FirstSends(lanes=1, pause_s=0.02)
        self._use(LoopDisk.make(directory / "disk.0", _IMAGE_MIB))

    def _use(self, disk: LoopDisk) -> None:
        # Without order between data and journal a file may show, after the cut, whatever its blocks held.
        disk.mount(self._dice.choice(("data=ordered", "data=writeback")))
        self._disk = disk
        self._broker = ChaosBroker(self._nursery, disk.root, {**PROPERTIES, **({} if self._is_sync else _ASYNC)})

    async def run(self, cycles: int) -> None:
        """Cut the power so many times; what is wrong is in `outcome`."""
        dice, outcome = self._dice, self.outcome
        self._broker.start()
        await self._load.prepare(self._broker.address)
        work = self._begin()
        while outcome.cuts < cycles and not outcome.problems:
            await asyncio.sleep(dice.uniform(0.005, 0.12))
            if work.done():
                await work
                raise AssertionError(f"the load ended by itself\n{self._broker.log_tail()}")
            if not self._is_sync and outcome.cuts % _SETTLED_EVERY == _SETTLED_EVERY - 1:
                await self._settle(work)
            if dice.random() < _KILL_SHARE:
                outcome.kills += 1
                await self._kill(work)
            elif await self._cut(dice.random() < _GENERATION_SHARE, work):
                outcome.generations += 1
            else:
                continue
            self._broker.start()
            work = self._begin()
        await self._kill(work)
        outcome.acknowledged = self._load.acknowledged
        if not outcome.problems:
            await self._finish()

    def _begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._work(self._broker.address, others=self._dice.random() < 0.5))

    async def _work(self, address: str, *, others: bool) -> None:
        await asyncio.gather(self._load.until_dead(address, others=others), self._first_sends.until_dead(address))

    async def _settle(self, work: asyncio.Task[None]) -> None:
        """Let the running broker flush what is acknowledged now.  Counted in turns of this loop, not in seconds."""
        end = self._load.acknowledged_end
        for _ in range(_SETTLING_INTERVALS):
            await asyncio.wait([work], timeout=FLUSH_INTERVAL_MS / 1000)
        self._flushed_end = end

    async def _kill(self, work: asyncio.Task[None]) -> None:
        self._broker.kill()
        await work

    async def _cut(self, goes_on_there: bool, work: asyncio.Task[None]) -> bool:
        """One cut; `goes_on_there` says that the broker's next life is on the copy, and is returned."""
        broker, outcome = self._broker, self.outcome
        broker.pause()
        stopped = time.monotonic()
        if self._dice.random() < 0.5:
            self._disk.write_back_some(self._dice, broker.store)
        # What the broker answered before it stood still was acknowledged before the cut.
        await asyncio.sleep(0.005)
        outcome.cuts += 1
        copy = self._disk.copy(self._directory / f"disk.{outcome.cuts}")
        # Recovery writes, so the copy that lives on is another one.
        examined = copy.duplicate(copy.image.with_suffix(f"{copy.image.suffix}.examined")) if goes_on_there else copy
        content = self._examine(examined, stopped)
        outcome.settled += self._flushed_end > 0
        self._flushed_end = 0
        if not goes_on_there:
            broker.go_on()
            return False
        await self._kill(work)
        if content is not None:
            self._load.forget_from(content.log_end)
        self._disk.remove()
        self._use(copy)
        return True

    def _examine(self, disk: LoopDisk, stopped: float) -> Content | None:
        """Mount, recover, compare, and remove the copy."""
        disk.mount()
        try:
            content = read_store(disk.root / "store")
        except StoreError as error:
            self._report(f"the store does not open: {error}")
            return None
        finally:
            disk.remove()
        if f'"{TOPIC}"' not in content.topics:
            self._report(f"topic {TOPIC} is not in topics.json")
        # Also with ASYNC_FLUSH a topic is on the disk before its first message is acknowledged.
        for topic in self._first_sends.acknowledged:
            if f'"{topic}"' not in content.topics:
                self._report(f"topic {topic} is not in topics.json")
        self.outcome.topics = len(self._first_sends.acknowledged)
        self._compare(content, stopped)
        return content

    def _compare(self, content: Content, stopped: float) -> None:
        load, outcome = self._load, self.outcome
        kept = QueueChecker(unknown=load.checker.unknown, problems=list(load.checker.problems))
        for place, key in load.checker.acknowledged.items():
            physical_offset, acknowledged_s = load.placed[key]
            if physical_offset < content.log_end:
                kept.acknowledged[place] = key
            else:
                outcome.lost += 1
                outcome.oldest_lost_s = max(outcome.oldest_lost_s, round(stopped - acknowledged_s, 3))
                if self._is_sync or physical_offset < self._flushed_end:
                    self._report(f"{key} is lost: the log ends at {content.log_end}, it was at {physical_offset}")
        for problem in kept.check(content.queues):
            self._report(problem)

    def _report(self, problem: str) -> None:
        self.outcome.problems.append(f"cut {self.outcome.cuts}: {problem}")

    async def _finish(self) -> None:
        """Once more with a broker: it shows everything, and stops in order."""
        broker = self._broker
        broker.start()
        for problem in await self._load.problems(broker.address, whole=True):
            self._report(f"at the end: {problem}")
        for key in await self._load.await_delayed(broker.address):
            self._report(f"at the end: delayed message {key} is missing")
        if broker.stop() != 0:
            self._report(f"the broker did not stop in order\n{broker.log_tail()}")
        self._disk.remove()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flush", choices=("SYNC_FLUSH", "ASYNC_FLUSH"), default="SYNC_FLUSH")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="power-cut-") as name:
        directory = Path(name) / "disks"
        try:
            mount_tmpfs(directory, _TMPFS_MIB)
            with Nursery() as nursery:
                cuts = PowerCuts(directory, nursery, arguments.flush, arguments.seed)
                asyncio.run(cuts.run(arguments.cycles))
        except CannotMount as error:
            print(error)
            sys.exit(SKIPPED)
        finally:
            unmount_all(directory)
    outcome = cuts.outcome
    outcome.problems = outcome.problems[:20]
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
