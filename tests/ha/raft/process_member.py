"""A member in a process of its own, for tests: reads commands from stdin, one per line, and answers on stdout.

``propose <hex>``, ``status`` and ``commands``.  Arguments: root directory, own id, members, secret.
"""

import asyncio
import os
import random
import secrets
import sys
from pathlib import Path

from ha.raft.consensus import NotLeaderError, OutcomeUnknownError
from ha.raft.core import Group
from ha.raft.member import RaftMember, Seams
from ha.raft.members import check_members, parse_members
from ha.raft.peers import Security, TcpPeers
from ha.raft.storage import Storage
from sprocket.common import failpoints
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError
from store.disk.disk import RealDisk
from tests.ha.raft.groups import Register, in_thread


async def _answer(member: RaftMember, machine: Register, line: str) -> str:
    word, _, rest = line.strip().partition(" ")
    if word == "status":
        return f"{member.leader or '-'} {member.term} {int(member.is_leader)}"
    if word == "commands":
        return " ".join(one.hex() for one in machine.commands)
    try:
        return "ok " + (await member.propose(bytes.fromhex(rest), timeout_ms=3000)).hex()
    except NotLeaderError as error:
        return f"not_leader {error.leader or '-'}"
    except OutcomeUnknownError:
        return "unknown"


def _end(error: SprocketError) -> None:
    """End the process as a server does whose disk failed."""
    print(error, file=sys.stderr)
    os._exit(74)


async def _main(root: str, own_id: str, members: str, secret: str) -> None:
    failpoints.arm(os.environ.get(failpoints.VARIABLE, ""))
    places = parse_members(members)
    own = check_members(places, own_id)
    machine = Register()
    peers = TcpPeers(own, places, Security(secrets.token_bytes, secret.encode()))
    storage = Storage(RealDisk(), Path(root) / own_id, secrets.token_bytes)
    member = RaftMember(
        Group("g", places, own_id),
        machine,
        storage,
        peers,
        Seams(SystemClock(), random.random, in_thread),
        on_failure=_end,
    )
    await member.start()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        print(await _answer(member, machine, line.decode()), flush=True)
    await member.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:5]))
