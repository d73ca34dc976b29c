"""The border of the Raft layer: what controllers and brokers give to it, and what they get."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sprocket.common.errors import SprocketError


@dataclass(frozen=True)
class Member:
    """One member of a group: its id, and the address at which the other members reach it."""

    id: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.id}-{host}:{self.port}"


class ConsensusError(SprocketError):
    """A command or read that the group did not carry out, or may not have carried out."""


class NotLeaderError(ConsensusError):
    """Refused, and certainly not applied: this member does not lead.  `leader` is the id of the leader, if known."""

    def __init__(self, leader: str | None) -> None:
        super().__init__(f"this member is not the leader: ask {leader}" if leader else "no leader is known: retry soon")
        self.leader = leader


class OutcomeUnknownError(ConsensusError):
    """The command may have been applied, or may still be applied.  Read the state before trying again."""


class ConsensusBusyError(ConsensusError):
    """Refused, and certainly not applied: too many proposals wait on this member.  Try again later."""


class StateMachine(Protocol):
    """The replicated state.

    Deterministic: the same commands in the same order give the same answers and the same snapshot bytes on every
    member.  All methods are called in the event loop's thread.
    """

    def apply(self, command: bytes) -> bytes:
        """Apply `command` and return the answer.

        Reads no clock and no randomness: times are inside the command.  Never raises: a bad command gets an encoded
        error as its answer.
        """

    def snapshot(self) -> bytes:
        """Return the whole state, from which `restore` makes an equal one."""

    def restore(self, snapshot: bytes) -> None:
        """Replace the whole state by that of `snapshot`.  Raises `ValueError` for bytes that are no snapshot."""


# Called in the event loop's thread after each change, with the leader's id (None if unknown) and the term.
LeaderListener = Callable[[str | None, int], None]


class Consensus(Protocol):
    """One member of the group."""

    @property
    def leader(self) -> str | None:
        """Id of the leader that this member knows; None if it knows none."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads and has applied all that was committed before its term.

        Another member may lead by now: see `confirm_leadership`.
        """

    @property
    def term(self) -> int:
        """The term, which every election increases.  0 before the first one."""

    async def propose(self, command: bytes, *, timeout_ms: int) -> bytes:
        """Return the answer of `StateMachine.apply`, after a majority has synced `command`.

        Raises `NotLeaderError` if the command is certainly not applied, `OutcomeUnknownError` if it may be applied or
        may still be, also after `timeout_ms`, and `ValueError` for a command that is too large.
        """

    async def confirm_leadership(self, *, timeout_ms: int) -> None:
        """Return once a majority has confirmed, after this call began, that this member leads.

        A read of the state after that is linearizable.  Raises `NotLeaderError` otherwise.
        """

    async def start(self) -> None:
        """Open the files and the port, and take part.

        Raises `ConfigError` for wrong members, and `StoreError` for damaged files.
        """

    async def close(self) -> None:
        """Stop taking part and close files and connections.  Proposals that wait get `OutcomeUnknownError`."""
