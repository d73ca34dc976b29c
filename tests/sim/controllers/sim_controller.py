"""One controller process on a simulated machine: the real server and Raft member, a simulated disk and network."""

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from controller.config import ControllerConfig
from controller.consensus import ControllerConsensus, Surroundings
from controller.server import Controller
from controller.state.commands import ElectMaster, decode_command
from controller.state.group import Group
from controller.state.machine import ControllerMachine
from ha.raft.consensus import Member, StateMachine
from ha.raft.core import Group as RaftGroup
from ha.raft.member import RaftMember, Seams
from ha.raft.peers import Security, TcpPeers
from ha.raft.storage import Storage
from sprocket.common.errors import SprocketError
from tests.sim.cluster.machine import Machine
from tests.sim.sim_disk import ROOT

PORT: Final = 9878
RAFT_PORT: Final = 10878
_SECRET: Final = b"of the simulated controllers"
# Gets each group that an election has changed, and whether the controllers asked for it, not a broker or an operator.
OnElection = Callable[[Group, bool], None]


class SimController:
    """From the start of the process to its end."""

    def __init__(self, machine: Machine, members: Sequence[str], folder: Path, on_election: OnElection) -> None:
        """`members` are the addresses of all controllers; `folder` holds what is not simulated, and is empty."""
        self.machine = machine
        self.process = machine.start_process()
        self.failure: SprocketError | None = None
        self._rng = random.Random(machine.scheduler.rng.random())
        self._members = [Member(f"n{at}", ip, RAFT_PORT) for at, ip in enumerate(members)]
        self._own = next(one for one in self._members if one.host == machine.ip)
        self._on_election = on_election
        self._server: Controller | None = None
        config = ControllerConfig(
            bind_address=machine.ip,
            controller_dleger_group="g",
            controller_dleger_peers=";".join(f"{one.id}-{one.host}:{PORT}" for one in self._members),
            controller_dleger_self_id=self._own.id,
            controller_store_path=folder,
        )
        self.process.call_soon(self._begin, config)

    @property
    def server(self) -> Controller | None:
        """The server; None before the process has begun."""
        return self._server

    def _begin(self, config: ControllerConfig) -> None:
        # An error that nobody foresaw is a bug, and ends the run.
        self.process.create_task(self._start(config)).add_done_callback(lambda task: task.result())

    async def _start(self, config: ControllerConfig) -> None:
        server = Controller(config, clock=self.machine, on_fatal=self._fail, make_consensus=self._raft)
        self._watch(server.machine)
        self._server = server
        await server.start()

    def _raft(self, _: ControllerConfig, machine: StateMachine, around: Surroundings) -> ControllerConsensus:
        return RaftMember(
            RaftGroup("g", self._members, self._own.id),
            machine,
            Storage(self.machine.disk, ROOT / "raft", self._rng.randbytes),
            TcpPeers(self._own, self._members, Security(self._rng.randbytes, _SECRET)),
            Seams(self.machine, self._rng.random, self._in_thread),
            on_failure=around.on_fatal,
        )

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.sleep(self.machine.turn_s())
        work()

    def _watch(self, machine: ControllerMachine) -> None:
        """Tell of elections."""
        apply = machine.apply

        def watched(command: bytes) -> bytes:
            decoded = decode_command(command)
            before = machine.group(decoded.name)
            answer = apply(command)
            after = machine.group(decoded.name)
            if isinstance(decoded, ElectMaster) and after is not None and after is not before:
                self._on_election(after, decoded.broker_id is None)
            return answer

        setattr(machine, "apply", watched)  # noqa: B010 # a method of one object

    def _fail(self, error: SprocketError) -> None:
        self.failure = error
