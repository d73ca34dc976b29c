"""The disk of a slave, then of its master, fills up.  Run it with `unshare -m`, as root.

While the slave's disk is full its log stands still and the master goes on: ASYNC_MASTER acknowledges, SYNC_MASTER
answers FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE.  While the master's is full it refuses with the cause, and serves
reads.  With space again all goes on without being restarted, nothing acknowledged is lost, and both logs are the same.

Prints one line of JSON.  Status 77: this machine does not allow mounts.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from sprocket.common.errors import SprocketError
from tests.chaos.disks.loop_disk import MIB, SKIPPED, CannotMount, mount_tmpfs, unmount_all
from tests.chaos.load import Load, Refused
from tests.chaos.nursery import BrokerEnded, Nursery
from tests.chaos.replication.pair import ChaosNameServers, ChaosPair, Node, log_end, until

_DISK_MIB: Final = 48
_FREE_BYTES: Final = MIB // 2
_PROPERTIES: Final = {
    "mappedFileSizeCommitLog": str(512 * 1024),
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
    # So that a send does not wait long for a slave that takes nothing, and a slave is soon out of the set.
    "slaveTimeout": "300",
    "haMaxTimeSlaveNotCatchup": "1000",
}


@dataclass
class Outcome:
    """What a run did and found."""

    role: str
    cycles: int = 0
    acknowledged: int = 0
    undecided: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)


class FullReplica:
    """One run of a pair whose nodes have a small disk each."""

    def __init__(self, pair: ChaosPair, outcome: Outcome) -> None:
        self._pair = pair
        self._load = Load()
        self.outcome = outcome

    async def run(self, cycles: int) -> None:
        """Fill and empty each disk so many times; what is wrong is in `outcome`."""
        try:
            await self._pair.start()
            await self._load.prepare(self._pair.master.direct)
            for _ in range(cycles):
                await self._fill_slave()
                await self._fill_master()
                self.outcome.cycles += 1
        except (AssertionError, BrokerEnded, Refused, SprocketError) as error:
            self.outcome.problems.append(f"{type(error).__name__}: {error}\n{self._pair.logs()[-6000:]}")
        self.outcome.acknowledged = self._load.acknowledged
        self.outcome.undecided = self._load.undecided.total()
        self.outcome.refused = self._load.refused

    async def _fill_slave(self) -> None:
        pair, load = self._pair, self._load
        fill(pair.slave)
        before, goal = load.undecided.total() + load.acknowledged, 2 * _FREE_BYTES
        begin = await log_end(pair.master.direct)
        while await log_end(pair.master.direct) < begin + goal:
            await load.attempts(pair.master.direct, 100)
        assert load.undecided.total() + load.acknowledged > before
        if pair.role == "SYNC_MASTER":
            assert load.undecided.total(), "SYNC_MASTER said SEND_OK of what its slave has no room for"
        assert await log_end(pair.slave.direct) < await log_end(pair.master.direct)
        await self._heal(pair.slave)

    async def _fill_master(self) -> None:
        pair, load = self._pair, self._load
        fill(pair.master)
        try:
            await load.until_dead(pair.master.direct, others=False)
        except Refused as refusal:
            if not any(words in refusal.remark.lower() for words in ("no space left", "disk full", "disk is full")):
                raise
        else:
            raise AssertionError("the master ended on a full disk")
        await self._check()
        await self._heal(pair.master)

    async def _heal(self, node: Node) -> None:
        """With space again: sends are accepted, the slave catches up, and no broker restarts."""
        make_room(node)
        pids = [self._pair.master.pid, self._pair.slave.pid]
        # First, because sends that are answered SLAVE_NOT_AVAILABLE would fill the disk again before the slave returns.
        await self._pair.assert_same_log()

        async def takes() -> bool:
            try:
                await self._load.sends(self._pair.master.direct, 20)
            except Refused:
                return False
            return True

        await until(takes, lambda: "sends are taken again")
        await self._pair.assert_same_log()
        await self._check()
        assert pids == [self._pair.master.pid, self._pair.slave.pid]

    async def _check(self) -> None:
        problems = await self._load.problems(self._pair.master.direct)
        assert not problems, problems[:10]


def fill(node: Node) -> None:
    """Leave a little on its disk."""
    free = os.statvfs(node.directory)
    with (node.directory / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(4096, free.f_bfree * free.f_frsize - _FREE_BYTES))


def make_room(node: Node) -> None:
    """Take away what fills its disk."""
    (node.directory / "filler").unlink()


async def play(directory: Path, nursery: Nursery, outcome: Outcome, cycles: int) -> None:
    """A pair on small disks of their own below `directory`."""
    with (
        ChaosNameServers(nursery, directory) as name_servers,
        ChaosPair(nursery, directory / "pair", name_servers.addresses, outcome.role, _PROPERTIES) as pair,
    ):
        for node in (pair.master, pair.slave):
            mount_tmpfs(node.directory, _DISK_MIB)
        await FullReplica(pair, outcome).run(cycles)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--role", choices=("SYNC_MASTER", "ASYNC_MASTER"), default="SYNC_MASTER")
    arguments = parser.parse_args()
    outcome = Outcome(arguments.role)
    with tempfile.TemporaryDirectory(prefix="replica-full-") as name:
        try:
            with Nursery() as nursery:
                asyncio.run(play(Path(name), nursery, outcome, arguments.cycles))
        except CannotMount as error:
            print(error)
            sys.exit(SKIPPED)
        finally:
            for number in (1, 2):
                unmount_all(Path(name) / "pair" / f"node-{number}")
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
