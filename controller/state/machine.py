"""State machine of the controllers: all broker groups, changed by commands in the order of the log.

It knows neither clock, network nor disk.  Which brokers are alive is not part of it, as in RocketMQ's DLedger
controller: every controller counts heartbeats itself.
"""

from collections.abc import Callable, Iterator

from controller.state import commands
from controller.state.commands import Command, Outcome, UnreadableState
from controller.state.decisions import decide
from controller.state.group import Group
from sprocket.common import limits
from sprocket.remoting.codes import ResponseCode


class ControllerMachine:
    """State machine of one controller: a `ha.raft.consensus.StateMachine`.

    `on_unreadable` gets the error of an entry that this version cannot read.  It must end the process: the other
    controllers may carry out what this one skips.
    """

    def __init__(self, on_unreadable: Callable[[UnreadableState], None]) -> None:
        self._on_unreadable = on_unreadable
        self._groups: dict[str, Group] = {}
        self._replicas = 0  # of all groups

    def apply(self, command: bytes) -> bytes:
        """Carry out one entry of the log.  Return its outcome's bytes."""
        try:
            decoded = commands.decode_command(command)
        except UnreadableState as error:
            self._on_unreadable(error)
            return commands.encode_outcome(Outcome(ResponseCode.SYSTEM_ERROR, str(error)))
        outcome, after = self._decided(decoded)
        before = self._groups.get(decoded.name)
        if after is not before:
            self._set(decoded.name, before, after)
        return commands.encode_outcome(outcome)

    def snapshot(self) -> bytes:
        """Return the whole state.  Equal states have equal bytes."""
        return commands.encode_groups(tuple(group for _, group in sorted(self._groups.items())))

    def restore(self, snapshot: bytes) -> None:
        """Replace the whole state.  Raises UnreadableState, with nothing changed."""
        groups = commands.decode_groups(snapshot)
        self._groups = {group.name: group for group in groups}
        self._replicas = sum(len(group.replicas) for group in groups)

    def unchanged_by(self, command: Command) -> Outcome | None:
        """Return the outcome of a command that would change nothing now; None for one that must go into the log."""
        outcome, after = self._decided(command)
        return outcome if after is self._groups.get(command.name) else None

    def group(self, name: str) -> Group | None:
        """Return a broker group by its name."""
        return self._groups.get(name)

    def groups(self) -> Iterator[Group]:
        """Yield all broker groups by name."""
        for _, group in sorted(self._groups.items()):
            yield group

    def _decided(self, command: Command) -> tuple[Outcome, Group | None]:
        before = self._groups.get(command.name)
        outcome, after = decide(before, command)
        full = self._full(before) if _count(after) > _count(before) else ""
        return (Outcome(ResponseCode.CONTROLLER_BROKER_ID_INVALID, full), before) if full else (outcome, after)

    def _full(self, before: Group | None) -> str:
        """Return why no broker can be added, or the empty text."""
        advice = "clean the metadata of brokers that are gone"
        if before is None and len(self._groups) >= limits.MAX_CONTROLLER_GROUPS:
            return f"the controllers know {len(self._groups)} broker-sets, the limit; {advice}"
        if self._replicas >= limits.MAX_CONTROLLER_REPLICAS:
            return f"the controllers know {self._replicas} brokers, the limit; {advice}"
        return ""

    def _set(self, name: str, before: Group | None, after: Group | None) -> None:
        self._replicas += _count(after) - _count(before)
        if after is None:
            self._groups.pop(name, None)
        else:
            self._groups[name] = after


def _count(group: Group | None) -> int:
    return 0 if group is None else len(group.replicas)
