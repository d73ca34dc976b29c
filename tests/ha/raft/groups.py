"""Groups of members in one process, over real sockets and files; and the state machine that tests replicate."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ha.raft.consensus import LeaderListener, Member, NotLeaderError
from ha.raft.core import Group
from ha.raft.elections import Timing
from ha.raft.member import RaftMember, Seams
from ha.raft.peers import Peers, Security, TcpPeers
from ha.raft.storage import Storage
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError
from store.disk.disk import Disk, RealDisk
from tests.compat.ports import free_port

T = TypeVar("T")


class Register:
    """A state machine that keeps every command, and answers with their number and the command."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        # For a checker: how many of them it has seen.
        self.checked = 0

    def apply(self, command: bytes) -> bytes:
        self.commands.append(command)
        return b"%d %b" % (len(self.commands), command)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.commands)

    def restore(self, snapshot: bytes) -> None:
        self.commands = msgspec.msgpack.decode(snapshot, type=list[bytes])


async def in_thread(work: Callable[[], None]) -> None:
    """Run blocking work beside the loop."""
    await asyncio.to_thread(work)


class LocalGroup:
    """Members n0, n1, ... of one group in this process."""

    def __init__(self, root: Path, count: int = 3, *, secret: bytes = b"secret", timing: Timing | None = None) -> None:
        self.root = root
        self.secret = secret
        self.timing = timing
        self.places = [Member(f"n{at}", "127.0.0.1", port) for at, port in enumerate(free_port() for _ in range(count))]
        self.members: dict[str, RaftMember] = {}
        self.machines: dict[str, Register] = {}
        self.failures: dict[str, SprocketError] = {}

    def build(
        self,
        member_id: str,
        *,
        disk: Disk | None = None,
        peers: Peers | None = None,
        name: str = "g",
        in_thread: Callable[[Callable[[], None]], Awaitable[None]] = in_thread,
        listeners: Sequence[LeaderListener] = (),
    ) -> RaftMember:
        """Make a member that is not started."""
        group = Group(name, self.places, member_id)
        own = next(one for one in self.places if one.id == member_id)
        peers = peers or TcpPeers(own, self.places, Security(secrets.token_bytes, self.secret))
        machine = self.machines[member_id] = Register()
        storage = Storage(disk or RealDisk(), self.root / member_id, secrets.token_bytes)
        seams = Seams(SystemClock(), random.random, in_thread)
        member = RaftMember(
            group, machine, storage, peers, seams, timing=self.timing, listeners=listeners,
            on_failure=lambda error: self.failures.__setitem__(member_id, error),
        )  # fmt: skip
        self.members[member_id] = member
        return member

    async def start(self, *member_ids: str) -> None:
        """Start members, all if none is named."""
        for member_id in member_ids or [one.id for one in self.places]:
            await self.build(member_id).start()

    async def stop(self, member_id: str) -> None:
        """Stop a member."""
        await self.members.pop(member_id).close()

    async def close(self) -> None:
        """Stop all members."""
        for member_id in list(self.members):
            await self.stop(member_id)

    async def leader(self) -> RaftMember:
        """Return the leader that a majority of the running members agrees on."""

        async def found() -> RaftMember | None:
            for member_id, member in self.members.items():
                agreeing = sum(one.leader == member_id for one in self.members.values())
                if member.is_leader and agreeing > len(self.places) // 2:
                    return member
            return None

        return await until(found)

    async def propose(self, command: bytes) -> bytes:
        """Propose at the present leader."""
        while True:
            try:
                return await (await self.leader()).propose(command, timeout_ms=5000)
            except NotLeaderError:
                await asyncio.sleep(0.02)


async def until(found: Callable[[], Awaitable[T | None]], limit_s: float = 60.0) -> T:
    """Return what `found` returns, as soon as that is not None or False."""
    async with asyncio.timeout(limit_s):
        while True:
            value = await found()
            if value:
                return value
            await asyncio.sleep(0.01)
