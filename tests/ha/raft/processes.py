"""Groups whose members are processes, which a test may kill or pause."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from ha.raft.consensus import Member
from tests.compat.ports import free_port

_REPOSITORY = Path(__file__).resolve().parents[3]


class ProcessMember:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asking = asyncio.Lock()

    async def ask(self, line: str, limit_s: float = 8.0) -> str:
        """Send a line and return the answer; empty if the process is gone or does not answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        async with self._asking:
            try:
                self._process.stdin.write(line.encode() + b"\n")
                answer = await asyncio.wait_for(self._process.stdout.readline(), limit_s)
            except (TimeoutError, ConnectionError):
                return ""
            return answer.decode().strip()

    async def ready(self) -> None:
        """Return when the member has started."""
        assert self._process.stdout is not None
        assert await asyncio.wait_for(self._process.stdout.readline(), 20) == b"ready\n"

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    async def ended(self, limit_s: float = 60.0) -> int:
        """Return the process's exit status, as soon as it ends by itself."""
        return await asyncio.wait_for(self._process.wait(), limit_s)

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


class ProcessGroup:
    """Members n0, n1, ... of one group, each a process."""

    def __init__(self, root: Path, count: int = 3) -> None:
        self._root = root
        self.places = [Member(f"n{at}", "127.0.0.1", port) for at, port in enumerate(free_port() for _ in range(count))]
        self.members: dict[str, ProcessMember] = {}
        self._starting: dict[str, ProcessMember] = {}

    async def start(self, *member_ids: str, failpoints: str = "") -> None:
        """Start members, all if none is named, and wait until they run; with `failpoints` armed."""
        started = {}
        for member_id in member_ids or tuple(one.id for one in self.places):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.ha.raft.process_member", str(self._root), member_id,
                ";".join(str(one) for one in self.places), "secret", cwd=_REPOSITORY,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=16 * 1024 * 1024,
                env={**os.environ, "SPROCKET_FAILPOINTS": failpoints},
            )  # fmt: skip
            started[member_id] = self._starting[member_id] = ProcessMember(process)
        for member_id, member in started.items():
            await member.ready()
            self.members[member_id] = self._starting.pop(member_id)

    async def kill(self, member_id: str) -> None:
        """Kill a member with SIGKILL."""
        await self.members.pop(member_id).kill()

    async def close(self) -> None:
        """Kill all members."""
        for member in [*self.members.values(), *self._starting.values()]:
            await member.kill()

    async def leader(self, limit_s: float = 60.0) -> str:
        """Return the id of the member that leads, as soon as one does."""
        async with asyncio.timeout(limit_s):
            while True:
                for member_id, member in self.members.items():
                    if (await member.ask("status", 1.0)).endswith(" 1"):
                        return member_id
                await asyncio.sleep(0.02)

    async def propose(self, command: bytes) -> str:
        """Propose at every member until one takes it.  Return its first word: ok, unknown or nothing."""
        while True:
            for member in list(self.members.values()):
                answer = await member.ask(f"propose {command.hex()}")
                if not answer.startswith("not_leader"):
                    return answer.partition(" ")[0]
            await asyncio.sleep(0.02)

    async def commands(self, member_id: str) -> list[bytes]:
        """Return what a member's state machine has."""
        answer = await self.members[member_id].ask("commands")
        return [bytes.fromhex(one) for one in answer.split()]
