"""Rounds of faults under load: ``unshare -n python -m tests.chaos.failover.rounds --mode all --rounds 20 --seed 1``.

Senders send to every broker all the time, so that a second master would find somebody to acknowledge to.  After each
round all heals, and the queues of the master are held against everything that was ever acknowledged.  Prints what
happened and how long nobody acknowledged.  Status 1 if something was lost, twice, or did not heal.
"""

import argparse
import asyncio
import random
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
from sprocket.remoting.headers.send import SendMessageResponseHeader
from tests.chaos.disks.loop_disk import CannotMount
from tests.chaos.failover.disks import Disks
from tests.chaos.failover.group import TOPIC, WAIT_S, Broker, FailoverGroup, Program
from tests.chaos.failover.lan import SKIPPED, Lan, NoNamespaces
from tests.chaos.load import read_queue
from tests.chaos.queue_checker import QueueChecker
from tests.send_headers import send_header

QUEUES: Final = 2
_SENDERS: Final = 2
_PAUSE_S: Final = 0.01
_SEND_LIMIT_S: Final = 3.0
MODES: Final = {
    "all": {"allAckInSyncStateSet": "true"},
    "two": {"inSyncReplicas": "2", "minInSyncReplicas": "2"},
    "dledger": {"enableDLegerCommitLog": "true"},
    "sync_flush": {"inSyncReplicas": "2", "minInSyncReplicas": "2", "flushDiskType": "SYNC_FLUSH"},
}
Fault = Callable[["Rounds", Broker, float], Awaitable[str]]


class Rounds:
    """The group, its senders, and what was acknowledged."""

    def __init__(self, group: FailoverGroup, seed: int, longest_pause_s: float, disks: Disks | None = None) -> None:
        self.group = group
        self.disks = disks
        self.dice = random.Random(seed)
        self.longest_pause_s = longest_pause_s
        self.checker = QueueChecker()
        self.gaps_s: list[float] = []
        self.last_ack_s = 0.0
        self._last_sent_s = 0.0  # when the request of the last acknowledged send left
        self._numbers = iter(range(1 << 40))
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[RemotingClient] = []

    # Load

    def start_load(self) -> None:
        """Send to all brokers from now on."""
        for broker in self.group.brokers:
            for number in range(_SENDERS):
                client = RemotingClient(connect_timeout_s=0.5)
                self._clients.append(client)
                self._tasks.append(asyncio.ensure_future(self._send(client, broker, number % QUEUES)))

    async def stop_load(self) -> None:
        """Stop sending.  Raises what a sender found wrong."""
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for client in self._clients:
            await client.close()
        self._clients.clear()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _send(self, client: RemotingClient, broker: Broker, queue: int) -> None:
        while True:
            key = f"k{next(self._numbers)}"
            header = send_header(TOPIC, queue_id=queue)
            body = (key + "." * self.dice.randrange(1, 300)).encode()
            self.checker.unknown.add(key)
            sent_s = time.monotonic()
            try:
                answer = await client.invoke(
                    broker.address, RequestCode.SEND_MESSAGE_V2, header, body, timeout_s=_SEND_LIMIT_S
                )
            except ClientError:
                await asyncio.sleep(0.05)
                continue
            if answer.code == ResponseCode.SUCCESS:
                told = answer.header(SendMessageResponseHeader)
                self.checker.on_acknowledged(key, told.queue_id, told.queue_offset)
                self.last_ack_s, self._last_sent_s = time.monotonic(), max(self._last_sent_s, sent_s)
            await asyncio.sleep(_PAUSE_S)

    async def next_ack(self, since_s: float) -> None:
        """Wait until a send that left after `since_s` is acknowledged, and note how long that took."""
        deadline = since_s + WAIT_S + self.longest_pause_s
        while self._last_sent_s <= since_s:
            assert time.monotonic() < deadline, "nobody acknowledges"
            await asyncio.sleep(0.01)
        self.gaps_s.append(self.last_ack_s - since_s)

    # Rounds

    async def play(self, name: str, fault: Fault) -> None:
        """One fault, healing, and the check."""
        master = await self.group.until_whole("before the fault")
        self.start_load()
        await asyncio.sleep(self.dice.uniform(0.3, 1.0))
        began = time.monotonic()
        said = await fault(self, master, self.dice.uniform(0.3, 1.0) * self.longest_pause_s)
        self.heal()
        await self.stop_load()
        master = await self.group.until_whole(f"after {name}")
        problems = await self._check(master)
        gap_ms = round(1000 * self.gaps_s[-1]) if self.gaps_s else -1
        seconds = time.monotonic() - began
        acked = len(self.checker.acknowledged)
        print(f"{name} {said} gap_ms={gap_ms} acked={acked} seconds={seconds:.1f}", flush=True)
        assert not problems, "\n".join(problems[:20])

    def heal(self) -> None:
        """End all that goes wrong."""
        self.group.lan.heal()
        for program in self.group.programs:
            program.go_on()
            program.start()

    async def _check(self, master: Broker) -> list[str]:
        client = self.group.client
        try:
            queues = {queue: await read_queue(client, master.address, TOPIC, queue, 0) for queue in range(QUEUES)}
        except ClientError as error:
            raise AssertionError(f"nothing was checked, because {master.address} does not answer: {error}") from None
        return self.checker.check(queues)


async def kill_master(rounds: Rounds, master: Broker, _: float) -> str:
    """SIGKILL."""
    at = time.monotonic()
    master.kill()
    await rounds.next_ack(at)
    return master.host.ip


async def kill_with_leader(rounds: Rounds, master: Broker, _: float) -> str:
    """SIGKILL of the master and of the controllers' leader at the same time."""
    leader = await rounds.group.leader()
    at = time.monotonic()
    master.kill()
    if leader is not None and rounds.group.controllers:
        leader.kill()  # in DLedger mode two of three brokers would be gone, and with them the majority
    await rounds.next_ack(at)
    return f"{master.host.ip} {leader and leader.host.ip}"


async def kill_slave(rounds: Rounds, master: Broker, _: float) -> str:
    """SIGKILL of a slave: the master goes on without it."""
    victim = rounds.dice.choice([one for one in rounds.group.brokers if one is not master])
    at = time.monotonic()
    victim.kill()
    await rounds.next_ack(at)
    return victim.host.ip


async def pause_master(rounds: Rounds, master: Broker, seconds: float) -> str:
    """SIGSTOP: another one leads; when it goes on, it acknowledges nothing more."""
    at = time.monotonic()
    master.pause()
    await rounds.next_ack(at)
    await asyncio.sleep(max(0.0, at + seconds - time.monotonic()))
    master.go_on()
    await asyncio.sleep(1.0)
    return f"{master.host.ip} {seconds:.1f} s"


async def cut_master(rounds: Rounds, master: Broker, seconds: float) -> str:
    """The master is cut off from all controllers and brokers; clients reach it."""
    lan, at = rounds.group.lan, time.monotonic()
    others: list[Program] = [one for one in rounds.group.programs if one is not master]
    lan.part([master.host], [one.host for one in others])
    await rounds.next_ack(at + 3.0)
    await asyncio.sleep(seconds)
    return f"{master.host.ip} {seconds:.1f} s"


async def cut_halves(rounds: Rounds, master: Broker, seconds: float) -> str:
    """The master and one controller against the rest."""
    lan, dice, at = rounds.group.lan, rounds.dice, time.monotonic()
    minority: list[Program] = [master, *dice.sample(rounds.group.controllers, 1 if rounds.group.controllers else 0)]
    lan.part([one.host for one in minority], [one.host for one in rounds.group.programs if one not in minority])
    await rounds.next_ack(at + 3.0)
    await asyncio.sleep(seconds)
    return f"{[one.host.ip for one in minority]} {seconds:.1f} s"


async def cut_one_way(rounds: Rounds, master: Broker, seconds: float) -> str:
    """What the master sends to the others is lost, or what they send to it."""
    lan, at, is_out = rounds.group.lan, time.monotonic(), rounds.dice.random() < 0.5
    for one in rounds.group.programs:
        if one is not master:
            lan.cut(*((master.host, one.host) if is_out else (one.host, master.host)))
    await rounds.next_ack(at + 3.0)
    await asyncio.sleep(seconds)
    return f"{master.host.ip} {'out' if is_out else 'in'} {seconds:.1f} s"


async def cut_bridge(rounds: Rounds, master: Broker, seconds: float) -> str:
    """Each slave is cut off from the master; all reach the controllers."""
    lan, at = rounds.group.lan, time.monotonic()
    lan.part([master.host], [one.host for one in rounds.group.brokers if one is not master])
    await asyncio.sleep(seconds)
    rounds.gaps_s.append(max(0.0, rounds.last_ack_s - at) if rounds.last_ack_s > at else 0.0)
    return f"{master.host.ip} {seconds:.1f} s"


async def kill_all(rounds: Rounds, _: Broker, seconds: float) -> str:
    """SIGKILL of everything at once."""
    for program in rounds.group.programs:
        program.kill()
    await asyncio.sleep(0.2)
    at = time.monotonic()
    rounds.heal()
    await rounds.next_ack(at)
    return ""


async def cut_power(rounds: Rounds, _: Broker, __: float) -> str:
    """Everything loses its power at one moment: what was not synced is gone."""
    disks = rounds.disks
    assert disks is not None
    for program in rounds.group.programs:
        program.pause()
    copies = await asyncio.to_thread(disks.copy_all)
    for program in rounds.group.programs:
        program.kill()
    await asyncio.to_thread(disks.replace_all, copies)
    at = time.monotonic()
    rounds.heal()
    await rounds.next_ack(at)
    return ""


FAULTS: Final[dict[str, Fault]] = {
    "kill_master": kill_master,
    "kill_with_leader": kill_with_leader,
    "pause_master": pause_master,
    "cut_master": cut_master,
    "cut_halves": cut_halves,
    "cut_one_way": cut_one_way,
    "cut_bridge": cut_bridge,
    "kill_slave": kill_slave,
    "kill_all": kill_all,
}
# Only with disks of its own for each host.
POWER: Final[dict[str, Fault]] = {"cut_power": cut_power}


async def run(
    directory: Path, mode: str, count: int, seed: int, longest_pause_s: float, only: str, *, has_disks: bool
) -> None:
    """Play `count` rounds, each kind of fault in turn."""
    kinds = POWER if has_disks else FAULTS
    with ExitStack() as stack:
        disks = stack.enter_context(Disks(directory)) if has_disks else None
        lan = stack.enter_context(Lan())
        home = directory.joinpath if disks is None else disks.home
        async with FailoverGroup(lan, home, MODES[mode]) as group:
            await group.create_topic(QUEUES)
            rounds = Rounds(group, seed, longest_pause_s, disks)
            names = [only] if only else list(kinds)
            try:
                for number in range(count):
                    name = names[number % len(names)]
                    await rounds.play(name, kinds[name])
            finally:
                await rounds.stop_load()
            gaps = sorted(rounds.gaps_s)
            print(
                f"rounds={count} acked={len(rounds.checker.acknowledged)} gap median={statistics.median(gaps):.2f} s "
                f"max={gaps[-1]:.2f} s"
            )


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.failover.rounds")
    parser.add_argument("--mode", choices=sorted(MODES), default="two")
    parser.add_argument("--rounds", type=int, default=len(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=4.0, help="longest pause or partition, s")
    parser.add_argument("--only", choices=["", *FAULTS], default="")
    parser.add_argument("--disks", action="store_true", help="cut the power of all; also needs unshare -m")
    parser.add_argument("--directory", type=Path, help="keep logs and stores here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = run(
            arguments.directory or Path(directory), arguments.mode, arguments.rounds, arguments.seed, arguments.pause,
            arguments.only, has_disks=arguments.disks,
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
