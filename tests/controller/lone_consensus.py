"""A consensus of one member, for tests of what stands above Raft: it leads unless the test says otherwise."""

from controller.config import ControllerConfig
from ha.raft.consensus import ConsensusError, NotLeaderError, OutcomeUnknownError, StateMachine


class LoneConsensus:
    """A `ha.raft.consensus.Consensus` that applies a command at once."""

    def __init__(self, config: ControllerConfig, machine: StateMachine) -> None:
        self._own = config.controller_dleger_self_id
        self._machine = machine
        self.leader: str | None = self._own
        self.term = 1
        self.proposed = 0
        self.confirmed = 0
        # The next proposals are applied, but their proposers never know.
        self.loses_answers = False
        self.forgotten: list[str] = []

    @property
    def is_leader(self) -> bool:
        return self.leader == self._own

    async def propose(self, command: bytes, *, timeout_ms: int) -> bytes:
        if not self.is_leader:
            raise NotLeaderError(self.leader)
        self.proposed += 1
        answer = self._machine.apply(command)
        if self.loses_answers:
            raise OutcomeUnknownError("the answer was lost")
        return answer

    async def confirm_leadership(self, *, timeout_ms: int) -> None:
        if not self.is_leader:
            raise NotLeaderError(self.leader)
        self.confirmed += 1

    async def forget_member(self, member_id: str, *, timeout_ms: int) -> None:
        if not self.is_leader:
            raise NotLeaderError(self.leader)
        if member_id not in ("n1", "n2"):
            raise ConsensusError(f"{member_id} is not another member of group g")
        self.forgotten.append(member_id)

    async def start(self) -> None: ...

    async def close(self) -> None: ...
