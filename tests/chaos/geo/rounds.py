"""Rounds of faults on two clusters that copy each other's topic, under load on both sides.

``unshare -mn python -m tests.chaos.geo.rounds --rounds 100 --seed 1``, as root.  The way between them takes 80 ms there
and back, and loses 1 % of the packets; the clocks of the brokers are apart.  After each round all heals, and both
clusters are held against each other and against everything that was ever acknowledged.  Prints a line for each round.
A round checks what came since the last check, and each time all kinds of faults were there, and at the end, everything
is checked.  Status 1 if something was lost, doubled, out of order, or did not heal; 77 if this machine allows no
namespaces.
"""

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sprocket.common.errors import ClientError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from tests.chaos.disks.loop_disk import CannotMount, fill
from tests.chaos.failover.disks import Disks
from tests.chaos.failover.group import TOPIC, Program
from tests.chaos.failover.lan import SKIPPED, Lan, NoNamespaces
from tests.chaos.geo.replicators import Replicator
from tests.chaos.geo.sites import Site
from tests.chaos.geo.twin_load import SEND_LIMIT_S, TwinLoad, may_pass
from tests.chaos.geo.wan import Wan
from tests.chaos.replication.fault_proxy import Way

QUEUES: Final = 2
NAMES: Final = ("east", "west")
_ROUND_TRIP_S: Final = 0.08
_LOST_SHARE: Final = 0.01
# Milliseconds by which the clocks of the brokers are wrong.
_SHIFTS_MS: Final = {"east": -3_600_000, "west": 1_200_000}
_WAIT_S: Final = 180.0
_BAD_LOSS: Final = 0.2
Fault = Callable[["Rounds", float], Awaitable[str]]


class Rounds:
    """Both clusters, their replicators, the load, and what was acknowledged."""

    def __init__(self, wan: Wan, home: Callable[[str], Path], seed: int, longest_pause_s: float) -> None:
        self.wan = wan
        self.dice = random.Random(seed)
        self.longest_pause_s = longest_pause_s
        self.home = home
        self.sites = [Site(name, wan, home, _SHIFTS_MS[name]) for name in NAMES]
        east, west = self.sites
        self.replicators = [
            Replicator(wan.add(target.name), home(f"to-{target.name}{twin}"), source, target)
            for source, target in ((east, west), (west, east))
            for twin in ("", "-twin")
        ]
        for site in self.sites:
            site.serve(wan)
        self.catch_up_s: list[float] = []
        self.client = RemotingClient(connect_timeout_s=1.0)
        self.load = TwinLoad({site.name: site.addresses for site in self.sites}, TOPIC, QUEUES, self.client, self.dice)

    @property
    def programs(self) -> list[Program]:
        """All processes that run while nothing is wrong: one replicator for each direction."""
        return [*(one for site in self.sites for one in site.programs), *self.replicators[::2]]

    async def start(self) -> None:
        """Start all processes and make the topic at both sites."""
        for program in self.programs[: -len(self.replicators) // 2]:
            program.start()
        for site in self.sites:
            for address in site.addresses:
                await self._create_topic(address)
        self.heal()

    async def close(self) -> None:
        """End all processes."""
        await self.load.stop()
        await self.client.close()
        for program in (*self.programs, *self.replicators):
            program.kill()

    def keep(self, folder: Path) -> None:
        """Copy the logs and stores of all hosts, as they are now, to a new folder."""
        for program in {one.directory: one for one in (*self.programs, *self.replicators)}.values():
            program.pause()
            shutil.copytree(program.directory, folder / program.directory.name)

    def heal(self) -> None:
        """End all that goes wrong; everything runs again."""
        self.wan.heal()
        for twin in self.replicators[1::2]:
            twin.kill()
        for program in self.programs:
            program.go_on()
            program.start()

    async def _create_topic(self, address: str) -> None:
        header = CreateTopicRequestHeader(
            topic=TOPIC, default_topic="TBW102", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                answer = await self.client.invoke(
                    address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_s=SEND_LIMIT_S
                )
            except ClientError:
                self._check_programs()
                assert time.monotonic() < deadline, f"{address} does not start"
                await asyncio.sleep(0.1)
                continue
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            return

    # Rounds

    async def play(self, name: str, fault: Fault, *, is_whole: bool) -> None:
        """One fault, healing, and the check: of everything that was ever sent, or of what came since the last one."""
        self.load.start()
        await asyncio.sleep(self.dice.uniform(0.5, 1.5))
        began = time.monotonic()
        said = await fault(self, self.dice.uniform(0.3, 1.0) * self.longest_pause_s)
        await asyncio.sleep(self.dice.uniform(0.0, 1.0))
        self.heal()
        await asyncio.sleep(self.dice.uniform(0.5, 1.5))
        await self.load.stop()
        healed = time.monotonic()
        await self._until_equal(name, is_whole)
        now = time.monotonic()
        self.catch_up_s.append(now - healed)
        acked = sum(map(len, self.load.acknowledged.values()))
        print(f"{name} {said} catch_up={now - healed:.1f} s acked={acked} seconds={now - began:.1f}", flush=True)

    async def _until_equal(self, name: str, is_whole: bool) -> None:
        deadline, found = time.monotonic() + _WAIT_S, ["nobody answers"]
        while time.monotonic() < deadline:
            self._check_programs()
            try:
                found = await self.load.problems(is_whole=False)
                if is_whole and not found:
                    found = await self.load.problems(is_whole=True)
            except (ClientError, AssertionError) as error:
                found = [f"nothing was checked: {error}"]
            else:
                if not all(may_pass(one) for one in found) or not found:
                    break
            await asyncio.sleep(0.5)
        assert not found, f"after {name}:\n" + "\n".join(found)

    def _check_programs(self) -> None:
        for program in self.programs:
            program.check()

    def one_of(self, programs: list[Program]) -> Program:
        """Return any of them."""
        return self.dice.choice(programs)


async def kill_broker(rounds: Rounds, seconds: float) -> str:
    """SIGKILL of a broker, which is source and target."""
    victim = rounds.one_of([broker for site in rounds.sites for broker in site.brokers])
    victim.kill()
    await asyncio.sleep(seconds)
    return victim.directory.name


async def kill_replicator(rounds: Rounds, seconds: float) -> str:
    """SIGKILL of a replicator, twice."""
    victim = rounds.one_of([*rounds.replicators[::2]])
    victim.kill()
    await asyncio.sleep(seconds / 2)
    victim.start()
    await asyncio.sleep(seconds / 2)
    victim.kill()
    return victim.directory.name


async def twin_replicators(rounds: Rounds, seconds: float) -> str:
    """A second replicator copies the same: the broker that keeps the lease is gone, and the first one stands still."""
    at = rounds.dice.choice((0, 2))
    first, twin = rounds.replicators[at : at + 2]
    twin.start()
    await asyncio.sleep(2.0)
    keeper = first.target.brokers[0]
    keeper.kill()
    await asyncio.sleep(seconds)
    first.pause()
    keeper.start()
    await asyncio.sleep(seconds)
    first.go_on()
    await asyncio.sleep(seconds)
    return first.directory.name


async def kill_site(rounds: Rounds, seconds: float) -> str:
    """SIGKILL of all servers of a site."""
    site = rounds.dice.choice(rounds.sites)
    for program in site.programs:
        program.kill()
    await asyncio.sleep(seconds)
    return site.name


async def kill_all(rounds: Rounds, seconds: float) -> str:
    """SIGKILL of everything."""
    for program in rounds.programs:
        program.kill()
    await asyncio.sleep(seconds / 4)
    return ""


async def kill_name_server(rounds: Rounds, seconds: float) -> str:
    """SIGKILL of a name server, and of a replicator, which starts without it."""
    site = rounds.dice.choice(rounds.sites)
    site.name_server.kill()
    rounds.one_of([*rounds.replicators[::2]]).kill()
    await asyncio.sleep(seconds)
    return site.name


async def pause_broker(rounds: Rounds, seconds: float) -> str:
    """SIGSTOP of a broker."""
    victim = rounds.one_of([broker for site in rounds.sites for broker in site.brokers])
    victim.pause()
    await asyncio.sleep(seconds)
    return victim.directory.name


async def stall_way(rounds: Rounds, seconds: float) -> str:
    """What is sent between the sites is lost, one way or both."""
    way = rounds.dice.choice((Way.THERE, Way.BACK, Way.BOTH))
    rounds.wan.stall(way)
    await asyncio.sleep(seconds)
    return str(way)


async def cut_way(rounds: Rounds, seconds: float) -> str:
    """Connections between the sites are reset, and new ones are refused."""
    rounds.wan.cut()
    await asyncio.sleep(seconds)
    return ""


async def half_open_way(rounds: Rounds, seconds: float) -> str:
    """Connections between the sites end at one end only."""
    rounds.wan.half_open()
    await asyncio.sleep(seconds)
    return ""


async def lose_much(rounds: Rounds, seconds: float) -> str:
    """A fifth of the packets is lost, while a broker is killed."""
    rounds.wan.lose(_BAD_LOSS, rounds.dice.randrange(1 << 30))
    await asyncio.sleep(seconds / 2)
    said = await kill_broker(rounds, seconds / 2)
    return f"{_BAD_LOSS:.0%} {said}"


async def fill_disk(rounds: Rounds, seconds: float) -> str:
    """No space is left for a broker, which is killed then, or not."""
    site, number = rounds.dice.choice(rounds.sites), rounds.dice.randrange(2)
    broker = site.brokers[number]
    filler = broker.directory / "filler"
    fill(filler)
    await asyncio.sleep(seconds / 2)
    is_killed = rounds.dice.random() < 0.3
    if is_killed:
        broker.kill()
        broker.start()
    await asyncio.sleep(seconds / 2)
    filler.unlink()
    return f"{broker.directory.name}{' killed' if is_killed else ''}"


FAULTS: Final[dict[str, Fault]] = {
    "kill_broker": kill_broker,
    "kill_replicator": kill_replicator,
    "twin_replicators": twin_replicators,
    "stall_way": stall_way,
    "fill_disk": fill_disk,
    "kill_site": kill_site,
    "half_open_way": half_open_way,
    "kill_all": kill_all,
    "pause_broker": pause_broker,
    "cut_way": cut_way,
    "kill_name_server": kill_name_server,
    "lose_much": lose_much,
}


async def run(directory: Path, count: int, seed: int, longest_pause_s: float, only: str, kept: Path | None) -> None:
    """Play `count` rounds, each kind of fault in turn."""
    with ExitStack() as stack:
        disks = stack.enter_context(Disks(directory))
        lan = stack.enter_context(Lan())
        wan = stack.enter_context(Wan(lan, _ROUND_TRIP_S, _LOST_SHARE))
        rounds = Rounds(wan, disks.home, seed, longest_pause_s)
        names = [only] if only else list(FAULTS)
        try:
            await rounds.start()
            for number in range(1, count + 1):
                name = names[(number - 1) % len(names)]
                is_whole = number % len(FAULTS) == 0 or number == count
                await rounds.play(f"{number} {name}", FAULTS[name], is_whole=is_whole)
        except AssertionError:
            if kept is not None:
                rounds.keep(kept)
            raise
        finally:
            await rounds.close()
        waits = sorted(rounds.catch_up_s)
        print(f"rounds={count} catch-up median={statistics.median(waits):.1f} s max={waits[-1]:.1f} s")


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.geo.rounds")
    parser.add_argument("--rounds", type=int, default=len(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=3.0, help="longest fault, s")
    parser.add_argument("--only", choices=["", *FAULTS], default="")
    parser.add_argument("--keep", type=Path, help="new folder for logs and stores if a round fails")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = run(
            Path(directory), arguments.rounds, arguments.seed, arguments.pause, arguments.only, arguments.keep
        )  # fmt: skip
        try:
            asyncio.run(work)
        except (NoNamespaces, CannotMount) as error:
            print(f"no network namespaces or mounts: {error}")
            return SKIPPED
        except AssertionError as error:
            print(f"FAILED: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
