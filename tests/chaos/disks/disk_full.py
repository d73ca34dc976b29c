"""A broker on a disk that fills up, again and again: ``unshare -m python -m tests.chaos.disks.disk_full --cycles 20``.

Each cycle leaves a little space, some bytes more or less, and sends until the broker refuses.  It must refuse with the
cause, go on to serve reads, and take sends again when there is space, without being restarted.  In some cycles it is
killed while the disk is full, and starts on the full disk.  Nothing acknowledged is lost, and there is no SIGBUS.

Prints one line of JSON.  Status 77: this machine does not allow mounts.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from sprocket.common.errors import SprocketError
from tests.chaos.disks.loop_disk import MIB, SKIPPED, CannotMount, LoopDisk, fill, mount_tmpfs, unmount_all
from tests.chaos.load import PROPERTIES, Load, Refused
from tests.chaos.nursery import BrokerEnded, ChaosBroker, Nursery

DISK_MIB: Final = 64
_TMPFS_MIB: Final = 256
_FREE_MAX_BYTES: Final = 1 * MIB
_KILL_SHARE: Final = 0.3
_HEAL_LIMIT_S: Final = 20.0
# The disk is to be full, not nearly full: what keeps it from that is off.
_PROPERTIES: Final = {
    **PROPERTIES,
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
}


@dataclass
class Outcome:
    """What a run did and found."""

    seed: int
    file_system: str
    cycles: int = 0
    kills: int = 0
    acknowledged: int = 0
    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class FullDisk:
    """One run on a file system mounted at `root`; `log` lies on another."""

    def __init__(self, root: Path, log: Path, nursery: Nursery, outcome: Outcome) -> None:
        self._root = root
        self._filler = root / "filler"
        self._dice = random.Random(outcome.seed)
        self._load = Load()
        self._broker = ChaosBroker(nursery, root, _PROPERTIES, log)
        self.outcome = outcome

    async def run(self, cycles: int) -> None:
        """Fill and empty the disk so many times; what is wrong is in `outcome`."""
        self._broker.start()
        await self._load.prepare(self._broker.address)
        while self.outcome.cycles < cycles and not self.outcome.problems:
            self.outcome.cycles += 1
            try:
                await self._cycle()
            except (AssertionError, BrokerEnded, Refused, SprocketError) as error:
                self._report(f"{type(error).__name__}: {error}\n{self._broker.log_tail()}")
        self.outcome.acknowledged = self._load.acknowledged
        if not self.outcome.problems:
            await self._check("at the end", whole=True)
            status = self._broker.stop()
            if status != 0:
                self._report(f"the broker stopped with status {status}\n{self._broker.log_tail()}")

    async def _cycle(self) -> None:
        await self._load.sends(self._broker.address, 20)
        self._fill()
        await self._send_until_refused()
        await self._check("while it is full")
        if self._dice.random() < _KILL_SHARE:
            self.outcome.kills += 1
            self._broker.kill()
            self._broker.start()
            await self._check("after a kill, still full")
        self._filler.unlink()
        await self._heal()
        await self._check("with space again")

    def _fill(self) -> None:
        """Leave some bytes free, down to none, at random."""
        fill(self._filler, self._dice.choice((0, self._dice.randrange(_FREE_MAX_BYTES))))

    async def _send_until_refused(self) -> None:
        try:
            await self._load.until_dead(self._broker.address, others=False)
        except Refused as refusal:
            remark = re.sub(r"[0-9.]+", "#", refusal.remark.replace(str(self._root), ""))
            if remark not in self.outcome.remarks:
                self.outcome.remarks.append(remark)
            if not any(words in refusal.remark.lower() for words in ("no space left", "disk full", "disk is full")):
                self._report(f"refused without the cause: {refusal}")
        else:
            raise AssertionError(f"the broker ended on a full disk\n{self._broker.log_tail()}")

    async def _heal(self) -> None:
        """Sends are taken again, soon and without anyone's help."""
        deadline = asyncio.get_running_loop().time() + _HEAL_LIMIT_S
        while True:
            try:
                await self._load.sends(self._broker.address, 20)
                return
            except Refused:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.05)

    async def _check(self, when: str, *, whole: bool = False) -> None:
        for problem in await self._load.problems(self._broker.address, whole=whole):
            self._report(f"{when}: {problem}")

    def _report(self, problem: str) -> None:
        self.outcome.problems.append(f"cycle {self.outcome.cycles}: {problem}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file-system", choices=("tmpfs", "ext4"), default="ext4")
    arguments = parser.parse_args()
    outcome = Outcome(arguments.seed, arguments.file_system)
    with tempfile.TemporaryDirectory(prefix="disk-full-") as name:
        directory = Path(name) / "disks"
        try:
            if arguments.file_system == "tmpfs":
                mount_tmpfs(directory, DISK_MIB)
                root = directory
            else:
                mount_tmpfs(directory, _TMPFS_MIB)
                disk = LoopDisk.make(directory / "disk", DISK_MIB)
                disk.mount()
                root = disk.root
            with Nursery() as nursery:
                asyncio.run(FullDisk(root, Path(name) / "broker.log", nursery, outcome).run(arguments.cycles))
        except CannotMount as error:
            print(error)
            sys.exit(SKIPPED)
        finally:
            unmount_all(directory)
    outcome.problems = outcome.problems[:20]
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
