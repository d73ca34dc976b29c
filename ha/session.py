"""The frames of a session: what two ends that are both Sprocket say to each other once they have greeted.

Every frame has the same head, then a body.  The layouts stand here once; docs/replication-protocol.md is written from
them.  All numbers are big-endian.  A frame counts only if its CRC-32 is right and its epoch is that of the session.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from sprocket.common.errors import ProtocolError
from store.record.checksum import crc32


class Field(NamedTuple):
    """One number of a layout: its name, its format in `struct`, its meaning."""

    name: str
    code: str
    meaning: str


class Layout:
    """Numbers that stand one behind the other, big-endian."""

    def __init__(self, title: str, *fields: Field) -> None:
        self.title = title
        self.fields = fields
        self.struct = struct.Struct(">" + "".join(field.code for field in fields))

    def unpack(self, body: memoryview) -> tuple[int, ...]:
        """The numbers of `body`, which holds nothing else.  Raises ProtocolError."""
        if len(body) != self.struct.size:
            raise ProtocolError("ha_frame", f"{self.title}: {len(body)} bytes, not {self.struct.size}")
        return self.struct.unpack(body)


class FrameType(IntEnum):
    """What a frame is; below 16 a master sends it, from 16 on a slave."""

    LOG = 1
    STATE = 2
    TABLE = 3
    CHECKSUM = 4
    REFUSAL = 5
    FETCH_TAIL = 6
    CUT = 7
    FETCH_TABLES = 8
    RANGE = 16
    COMPARE = 17
    RESUME = 18
    REPORT = 19
    SURPLUS = 20
    TAIL = 21
    GIVEN_TABLE = 22
    GIVEN_ALL = 23


MEANINGS: Final[dict[FrameType, tuple[str, str]]] = {
    FrameType.LOG: ("first byte's physical offset", "bytes of the log; never across a segment's end"),
    FrameType.STATE: ("end of the master's log", "STATE; the heartbeat, and the answer to RANGE"),
    FrameType.TABLE: ("end of the log that it stands on", "length of a name (u8), the name, a content for that table"),
    FrameType.CHECKSUM: ("first byte's physical offset", "CHECKSUM: the answer to COMPARE"),
    FrameType.REFUSAL: ("0", "why, UTF-8; the connection ends behind it"),
    FrameType.FETCH_TAIL: ("first byte's physical offset", "PIECE: how much of the slave's surplus is wanted"),
    FrameType.CUT: ("end of the master's log", "none; the slave's surplus is not wanted, it ends its log there"),
    FrameType.FETCH_TABLES: ("0", "none; the master lost its tables and takes the slave's"),
    FrameType.RANGE: ("end of the slave's log", "RANGE"),
    FrameType.COMPARE: ("first byte's physical offset", "PIECE: the range whose checksum is wanted"),
    FrameType.RESUME: ("end of the slave's log", "none; the log is sent from there on"),
    FrameType.REPORT: ("the slave has all before it", "REPORT; the acknowledgement, and the slave's heartbeat"),
    FrameType.SURPLUS: ("end of the slave's log", "none; all of the master's log is the beginning of the slave's"),
    FrameType.TAIL: ("first byte's physical offset", "bytes of the slave's log: the answer to FETCH_TAIL"),
    FrameType.GIVEN_TABLE: ("bytes of the table after this piece", "a piece of what TABLE has as its body"),
    FrameType.GIVEN_ALL: ("0", "none; after the last table"),
}
HEAD: Final = Layout(
    "head",
    Field("type", "B", "what it is, see below"),
    Field("flags", "B", "0"),
    Field("reserved", "H", "0"),
    Field("size_bytes", "I", "bytes of the body"),
    Field("epoch", "q", "the master's epoch, as WELCOME says it; frames of another one do not count"),
    Field("offset", "q", "a physical offset"),
    Field("crc", "I", "CRC-32 of the head before this field and of the body"),
)
STATE: Final = Layout(
    "STATE",
    Field("min_offset", "q", "first byte that the master keeps"),
    Field("confirm_offset", "q", "consumers of the master see what lies before it"),
    Field("flushed_offset", "q", "the master's log is on its disk up to here"),
)
RANGE: Final = Layout(
    "RANGE",
    Field("min_offset", "q", "first byte that the slave keeps"),
    Field("flushed_offset", "q", "the slave's log is on its disk up to here"),
)
REPORT: Final = Layout("REPORT", Field("flushed_offset", "q", "the slave's log is on its disk up to here"))
PIECE: Final = Layout("PIECE", Field("size_bytes", "I", "how many bytes of the log"))
CHECKSUM: Final = Layout(
    "CHECKSUM", Field("size_bytes", "I", "of how many bytes of the log"), Field("crc", "I", "their CRC-32")
)
LAYOUTS: Final = (HEAD, STATE, RANGE, REPORT, PIECE, CHECKSUM)

MOST_BODY_BYTES: Final = 64 * 1024 * 1024
# What a slave sends is small, but for the bytes that a master asked for.
MOST_SLAVE_BODY_BYTES: Final = 4 * 1024 * 1024
_CRC_BYTES: Final = 4
_CRC: Final = struct.Struct(">I")
_BEFORE_CRC: Final = struct.Struct(HEAD.struct.format[: -len("I")])
_FIRST_OF_SLAVES: Final = FrameType.RANGE
_TYPES: Final = {int(kind): kind for kind in FrameType}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that is whole and whose CRC is right."""

    type: FrameType
    epoch: int
    offset: int
    body: memoryview


def frame_head(kind: FrameType, epoch: int, offset: int, body: bytes | memoryview = b"") -> bytes:
    """The head of a frame; the body is not copied."""
    start = _BEFORE_CRC.pack(kind, 0, 0, len(body), epoch, offset)
    return start + _CRC.pack(crc32(body, crc32(start)))


def frame(kind: FrameType, epoch: int, offset: int, body: bytes = b"") -> bytes:
    """A whole frame with a small body."""
    return frame_head(kind, epoch, offset, body) + body


class FrameReader:
    """Takes frames out of what comes from the other end, however that is split.

    `from_slave` says which end it is; it bounds what is sent and how much of it.
    """

    def __init__(self, *, from_slave: bool) -> None:
        self._from_slave = from_slave
        self._most_bytes = MOST_SLAVE_BODY_BYTES if from_slave else MOST_BODY_BYTES
        self._rest = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._rest)

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """The frames that are whole now; their bodies are not copied if one read brought all of it.

        Raises ProtocolError for an unknown type, an offset below 0, a body that is too long, or a wrong CRC.
        """
        view = memoryview(data)
        frames: list[Frame] = []
        if self._rest:
            view = view[self._complete(view) :]
            frames, at = self._cut(memoryview(self._rest))
            if not at:
                return []
            # The views handed out keep the old bytes.
            self._rest = bytearray()
        more, at = self._cut(view)
        self._rest += view[at:]
        return frames + more

    def _complete(self, view: memoryview) -> int:
        """Add to the frame that has begun what it lacks, as far as it is there; how many bytes these are."""
        rest, used = self._rest, 0
        for _ in range(2):  # the head, and then the body whose size it says
            wanted = HEAD.struct.size
            if len(rest) >= wanted:
                number, flags, reserved, size_bytes, _, offset, _ = HEAD.struct.unpack_from(rest)
                self._checked(number, flags | reserved, size_bytes, offset)
                wanted += size_bytes
            part = view[used : used + wanted - len(rest)]
            rest += part
            used += len(part)
        return used

    def _cut(self, view: memoryview) -> tuple[list[Frame], int]:
        frames = []
        at, end = 0, len(view)
        head_bytes = HEAD.struct.size
        while at + head_bytes <= end:
            number, flags, reserved, size_bytes, epoch, offset, crc = HEAD.struct.unpack_from(view, at)
            kind = self._checked(number, flags | reserved, size_bytes, offset)
            stop = at + head_bytes + size_bytes
            if stop > end:
                break
            body = view[at + head_bytes : stop].toreadonly()
            if crc32(body, crc32(view[at : at + head_bytes - _CRC_BYTES])) != crc:
                raise ProtocolError("ha_frame", f"the CRC of a frame {kind.name} at offset {offset} is wrong")
            frames.append(Frame(kind, epoch, offset, body))
            at = stop
        return frames, at

    def _checked(self, number: int, zeros: int, size_bytes: int, offset: int) -> FrameType:
        kind = _TYPES.get(number)
        if kind is None or (kind >= _FIRST_OF_SLAVES) is not self._from_slave or zeros:
            raise ProtocolError("ha_frame", f"no frame begins with {number}")
        if size_bytes > self._most_bytes or offset < 0:
            raise ProtocolError("ha_frame", f"{kind.name} of {size_bytes} bytes at offset {offset}")
        return kind


def checked_epoch(frames: Sequence[Frame], epoch: int) -> Sequence[Frame]:
    """`frames`, all of which are of `epoch`.  Raises ProtocolError: what belongs to another epoch says nothing."""
    for one in frames:
        if one.epoch != epoch:
            raise ProtocolError("ha_epoch", f"{one.type.name} of the epoch {one.epoch}, this is {epoch}")
    return frames
