"""Messages of members to each other, as MessagePack, and their translation from and to pysyncobj's.

pysyncobj's own transport pickles its messages.  Here every message is a typed struct, and is checked against the rules
of Raft before pysyncobj sees it.  No byte of a peer is ever unpickled: `ha.raft.engine` gives commands to the state
machine as bytes, and messages that would carry a pickle (forwarded commands, commands in parts) do not exist.

pysyncobj's ``next_node_idx`` has no term, so a late one from an earlier term would count as an acknowledgement.  Here
each message has the term of its sender, and the member drops acknowledgements of other terms.
"""

from typing import Annotated, Any, Final

import msgspec

from ha.raft.journal import NO_OP, REGULAR
from sprocket.common.errors import ProtocolError

# Limits of one command, of the entries in one message, of one part of a snapshot, and of one frame.
MAX_COMMAND_BYTES: Final = 256 * 1024
BATCH_BYTES: Final = 512 * 1024
PIECE_BYTES: Final = 256 * 1024
MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
MAX_SNAPSHOT_BYTES: Final = 256 * 1024 * 1024

_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Message(msgspec.Struct, frozen=True, array_like=True, tag_field="type", forbid_unknown_fields=True):
    """Base of the messages.  `term` is the sender's term."""

    term: _Number


class Append(_Message, frozen=True, tag=1):
    """From the leader: entries after `previous_index`; none is a heartbeat."""

    commit_index: _Number
    previous_index: _Number
    previous_term: _Number
    entries: list[tuple[bytes, _Number, _Number]]

    @property
    def end_index(self) -> int:
        """Index of the last entry, or of the one before if there is none."""
        return self.previous_index + len(self.entries)


class Appended(_Message, frozen=True, tag=2):
    """Answer to `Append` and `SnapshotPart`.

    With `is_success`, everything before `next_index` is on the sender's disk.  With `is_reset`, send from there.
    """

    next_index: _Number
    is_reset: bool
    is_success: bool


class RequestVote(_Message, frozen=True, tag=3):
    """From a candidate, with the end of its log."""

    last_index: _Number
    last_term: _Number


class Vote(_Message, frozen=True, tag=4):
    """A vote for the receiver in `term`."""


class AskVote(_Message, frozen=True, tag=5):
    """Question whether the receiver would vote for the sender in `term`; changes nothing (Raft's pre-vote)."""

    last_index: _Number
    last_term: _Number


class WouldVote(_Message, frozen=True, tag=6):
    """Answer to `AskVote` for `asked_term`."""

    asked_term: _Number
    is_granted: bool


class Confirm(_Message, frozen=True, tag=7):
    """From the leader: question whether the receiver is still in `term`."""

    round: _Number


class Confirmed(_Message, frozen=True, tag=8):
    """Answer to `Confirm`, sent only if the receiver is in the same term."""

    round: _Number


class Behind(_Message, frozen=True, tag=9):
    """Answer to a leader of an earlier term: it leads no more."""


class SnapshotPart(_Message, frozen=True, tag=10):
    """From the leader: bytes of its snapshot from `offset` on, or none while earlier parts are on the way."""

    last_index: _Number
    last_term: _Number
    offset: _Number
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_SNAPSHOT_BYTES)]
    content: bytes

    @property
    def is_last(self) -> bool:
        """Whether the snapshot is complete with this part."""
        return bool(self.size_bytes) and self.offset + len(self.content) >= self.size_bytes

    def __getitem__(self, item: int) -> bool:
        """Return whether it is the last part, for which pysyncobj asks as item 2."""
        assert item == 2
        return self.is_last


Message = Append | Appended | RequestVote | Vote | AskVote | WouldVote | Confirm | Confirmed | Behind | SnapshotPart

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """Return the bytes of `message`."""
    return _ENCODER.encode(message)


def decode(content: bytes | memoryview) -> Message:
    """Decode and check a message.  Raises `ProtocolError` for anything that no member sends."""
    try:
        message: Message = _DECODER.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError("raft_message", str(error)) from None
    if isinstance(message, Append):
        _check_entries(message)
    elif isinstance(message, SnapshotPart) and message.offset + len(message.content) > message.size_bytes:
        raise ProtocolError("raft_snapshot", f"a part ends after the snapshot's {message.size_bytes} bytes")
    return message


def _check_entries(message: Append) -> None:
    index, term = message.previous_index, message.previous_term
    for command, entry_index, entry_term in message.entries:
        if command[:1] not in (REGULAR, NO_OP) or len(command) > MAX_COMMAND_BYTES:
            kind = command[:1].hex() or "-"
            raise ProtocolError("raft_entry", f"command of kind {kind} with {len(command)} bytes")
        if entry_index != index + 1 or entry_term < term:
            raise ProtocolError("raft_entry", f"entry {entry_index} of term {entry_term} after {index} of term {term}")
        index, term = entry_index, entry_term
    if term > message.term or not message.previous_index:
        raise ProtocolError("raft_entry", f"entries to {index} of term {term} from a leader of term {message.term}")


def from_engine(message: dict[str, Any], term: int) -> Message | None:
    """Return the message for a member; None for one that is never sent.  `term` is this member's."""
    match message["type"]:
        case "append_entries" if "serialized" in message:
            part: SnapshotPart | None = message["serialized"] or None
            return part or SnapshotPart(message["term"], 0, 0, 0, 0, b"")
        case "append_entries" if "entries" in message:
            return Append(
                message["term"], message["commit_index"], message["prevLogIdx"], message["prevLogTerm"],
                message["entries"],
            )  # fmt: skip
        case "next_node_idx":
            return Appended(term, message["next_node_idx"], message["reset"], message["success"])
        case "request_vote":
            return RequestVote(message["term"], message["last_log_index"], message["last_log_term"])
        case "response_vote":
            return Vote(message["term"])
    return None


def to_engine(message: Message) -> dict[str, Any] | None:
    """Return pysyncobj's form of a message; None for one that pysyncobj does not know."""
    match message:
        case Append():
            return {
                "type": "append_entries",
                "term": message.term,
                "commit_index": message.commit_index,
                "entries": message.entries,
                "prevLogIdx": message.previous_index,
                "prevLogTerm": message.previous_term,
            }
        case SnapshotPart():
            # Without a commit index: pysyncobj would take its own entries for committed that nobody compared.
            return {"type": "append_entries", "term": message.term, "commit_index": 0, "serialized": message}
        case Appended():
            return {
                "type": "next_node_idx",
                "next_node_idx": message.next_index,
                "reset": message.is_reset,
                "success": message.is_success,
            }
        case RequestVote():
            return {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            }
        case Vote():
            return {"type": "response_vote", "term": message.term}
    return None
