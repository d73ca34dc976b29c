"""What the group replicates: the user's state, and the disk with which each member is known.

A member that comes back with an empty or older disk has forgotten what it acknowledged and whom it voted for.  So the
group remembers each member's disk id and its number of starts, and members refuse one with another disk, or with an
earlier start.  `MemberForgotten` makes room for a new disk.

Why that is safe: the entry is committed by a majority without this member, because what a member with another disk
acknowledges does not count.  The member votes only once its log has a later entry that names its new disk.  Then its
log has everything that was committed before.  A vote of its older disk decides nothing any more.  A candidate that wins
also needs a member of that majority, which votes only for a log with the entry; such a candidate began after the loss.
In the term of the entry itself, the member's vote is its leader's.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ha.raft.consensus import StateMachine
from ha.raft.journal import REGULAR
from sprocket.common.errors import InvariantError


class Commands(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Commands of the user, in this order."""

    commands: list[bytes]


class MemberSeen(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A member was met with this disk, at this start of its process."""

    member_id: str
    disk_id: str
    starts: int


class MemberForgotten(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The member may come back with another disk."""

    member_id: str


Change = Commands | MemberSeen | MemberForgotten


class KnownDisk(msgspec.Struct, frozen=True, array_like=True):
    """The disk with which a member is known."""

    disk_id: str
    starts: int


class _State(msgspec.Struct, frozen=True, array_like=True):
    """The content of a snapshot."""

    disks: dict[str, KnownDisk]
    user: bytes


_DECODER: Final = msgspec.msgpack.Decoder(Change)
_KIND_BYTES: Final = len(REGULAR)
# Second byte of MessagePack's array for `Commands`: no need to decode them to see what they are.
_COMMANDS_TAG: Final = b"\x00"


def encode_change(change: Change) -> bytes:
    """Return the command for the log."""
    return REGULAR + msgspec.msgpack.encode(change)


class Replicated:
    """The replicated state of this member."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self.disks: dict[str, KnownDisk] = {}

    def apply(self, command: bytes) -> list[bytes]:
        """Apply one entry's command and return the answers to the user's commands in it.

        Raises `InvariantError` for a command of a later version: to skip it would make this member differ.
        """
        if command[:_KIND_BYTES] != REGULAR:
            return []
        try:
            change = _DECODER.decode(memoryview(command)[_KIND_BYTES:])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvariantError(f"the log has a command that this version does not know: {error}") from None
        match change:
            case Commands():
                return [self._machine.apply(one) for one in change.commands]
            case _:
                _note(self.disks, change)
        return []

    def snapshot(self) -> bytes:
        """Return the whole state."""
        disks = dict(sorted(self.disks.items()))
        return msgspec.msgpack.encode(_State(disks, self._machine.snapshot()))

    def restore(self, snapshot: bytes) -> None:
        """Replace the whole state.  Raises `ValueError`."""
        state = msgspec.msgpack.decode(snapshot, type=_State)
        self._machine.restore(state.user)
        self.disks = state.disks

    def after(self, commands: Iterable[bytes]) -> tuple[dict[str, KnownDisk], set[str]]:
        """Return the disks as they will be known once `commands` are applied, and the members that these forget."""
        disks, forgotten = dict(self.disks), set()
        for command in commands:
            if command[:_KIND_BYTES] == REGULAR and command[_KIND_BYTES + 1 : _KIND_BYTES + 2] != _COMMANDS_TAG:
                change = _DECODER.decode(memoryview(command)[_KIND_BYTES:])
                if not isinstance(change, Commands):
                    _note(disks, change)
                if isinstance(change, MemberForgotten):
                    forgotten.add(change.member_id)
        return disks, forgotten

    def news(self, member_id: str, disk_id: str, starts: int) -> MemberSeen | None:
        """Return what the group does not know yet of a member that is not refused."""
        known = self.disks.get(member_id)
        if known is not None and known.starts >= starts:
            return None
        return MemberSeen(member_id, disk_id, starts)


def reason_against(disks: Mapping[str, KnownDisk], member_id: str, disk_id: str, starts: int) -> str:
    """Return why a member with this disk is refused where `disks` are known; empty if it is not."""
    known = disks.get(member_id)
    if known is None or (known.disk_id == disk_id and known.starts <= starts):
        return ""
    what = "another disk" if known.disk_id != disk_id else "a later state of this disk"
    return (
        f"member {member_id} was known with {what} (known: {known.disk_id[:8]} start {known.starts}, "
        f"now: {disk_id[:8]} start {starts}); remove and add it again: with the right disk, or after "
        "forget_member on the leader with an empty one"
    )


def _note(disks: dict[str, KnownDisk], change: MemberSeen | MemberForgotten) -> None:
    if isinstance(change, MemberForgotten):
        disks.pop(change.member_id, None)
        return
    known = disks.get(change.member_id)
    if known is None or (known.disk_id == change.disk_id and known.starts < change.starts):
        disks[change.member_id] = KnownDisk(change.disk_id, change.starts)
