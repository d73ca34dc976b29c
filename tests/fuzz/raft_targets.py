"""Decoders of what comes over the port of a Raft group: greetings, frames, messages; and a journal's file."""

from contextlib import suppress
from pathlib import Path

from ha.raft import greeting
from ha.raft.frames import FrameReader, FrameWriter
from ha.raft.greeting import Accepted, Acceptor, Claims, Dialer, Hello, Proof, Welcome
from ha.raft.journal import FIRST_ENTRY
from ha.raft.journal_file import _HEAD, JournalFile, _scan
from ha.raft.messages import Append, Appended, Message, SnapshotPart, Vote, decode, encode, to_engine
from sprocket.common.errors import ProtocolError, StoreError
from tests.fuzz.target import Target, pieces_of
from tests.sim.sim_disk import ROOT, SimDisk

_KEY = bytes(32)
_MESSAGES: list[Message] = [
    Append(3, 2, 1, 1, [(b"\x00x", 2, 1), (b"\x01", 3, 3)]),
    Appended(3, 4, False, True),
    Vote(4),
    SnapshotPart(4, 3, 3, 0, 5, b"hello"),
]
_CLAIMS = [Claims("g", "n0-a:1;n1-b:2", one, "d", 1, False, 1, 5) for one in ("n0", "n1")]


def frames(data: bytes) -> None:
    """Frames are the same however they are split, and are refused alike."""
    assert _frames([data]) == _frames(pieces_of(data))


def _frames(pieces: list[bytes]) -> object:
    reader = FrameReader(_KEY, "n0")
    found: list[Message] = []
    try:
        for piece in pieces:
            found += reader.feed(piece)
    except ProtocolError as error:
        return error.kind
    return found


def messages(data: bytes) -> None:
    """A message that is accepted is one that a member could have sent."""
    with suppress(ProtocolError):
        message = decode(data)
        assert decode(encode(message)) == message
        to_engine(message)


def greetings(data: bytes) -> None:
    """Any bytes as each message of a greeting: a refusal, never a proof."""
    with suppress(ProtocolError):
        greeting.greeting_size(data[:4].ljust(4, b"\0"))
    for kind in (Hello, Welcome, Proof, Accepted):
        with suppress(ProtocolError):
            message = greeting.unpack(data, kind)
            if isinstance(message, Hello):
                end = Acceptor(_CLAIMS[1], message, b"s", bytes(32))
                assert end.check(Proof("", message.nonce))
            elif isinstance(message, Welcome):
                assert Dialer(_CLAIMS[0], "n1", b"s", bytes(32)).reason_against(message)


def journal(data: bytes) -> None:
    """Any bytes in a journal's file: a log without gaps, or a refusal."""
    with suppress(StoreError):
        entries, end, _ = _scan(Path("/journal"), data, bytes(16))
        assert end <= max(len(data), _HEAD.size)
        indexes = [entry[1] for entry in entries]
        assert indexes == list(range(indexes[0], indexes[0] + len(indexes))) if indexes else True


def _journal_seed() -> bytes:
    disk, path = SimDisk(), ROOT / "journal"
    file = JournalFile.create(disk, path, [FIRST_ENTRY], bytes(16))
    file.append([(b"\x00hello", 2, 1), (b"\x00again", 3, 1)])
    file.append([(b"\x00other", 3, 2)])
    content = disk.read(path)
    assert content is not None
    return content.rstrip(b"\0") + bytes(8)


_WRITER = FrameWriter(_KEY, "n0")
_DIALER = Dialer(_CLAIMS[0], "n1", b"s", bytes(32))
_WELCOME = Acceptor(_CLAIMS[1], _DIALER.hello, b"other", bytes(32)).welcome
RAFT_TARGETS = [
    Target("raft_frames", frames, [b"".join(_WRITER.frame(one) for one in _MESSAGES)]),
    Target("raft_messages", messages, [encode(one) for one in _MESSAGES]),
    Target(
        "raft_greetings",
        greetings,
        [greeting.pack(one)[4:] for one in (_DIALER.hello, _WELCOME, Proof("", bytes(32)), Accepted(""))],
        4000,
    ),
    Target("raft_journal", journal, [_journal_seed()]),
]
