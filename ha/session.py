"""The frames of a session: what two Sprocket brokers exchange after their greeting.

Every frame has a head of one layout, then a body.  docs/replication-protocol.md is written from the layouts here.  All
numbers are big-endian.  A frame counts only if its CRC-32 is right and its epoch is that of the session.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ha.epochs.epoch_history import MAX_EPOCHS, Epoch, EpochHistory
from ha.piece_reader import PieceReader
from sprocket.common.errors import ProtocolError
from sprocket.engine.choice import native
from store.record.checksum import crc32


class Field(NamedTuple):
    """One number of a layout: its name, its format in `struct`, its meaning."""

    name: str
    code: str
    meaning: str


class Layout:
    """Big-endian numbers that follow one another."""

    def __init__(self, title: str, *fields: Field) -> None:
        self.title = title
        self.fields = fields
        self.struct = struct.Struct(">" + "".join(field.code for field in fields))

    def unpack(self, body: memoryview) -> tuple[int, ...]:
        """Return the numbers of `body`, which holds nothing else.  Raises ProtocolError."""
        if len(body) != self.struct.size:
            raise ProtocolError("ha_frame", f"{self.title}: {len(body)} bytes, not {self.struct.size}")
        return self.struct.unpack(body)


class FrameType(IntEnum):
    """Type of a frame: masters send those below 16, slaves the others."""

    LOG = 1
    STATE = 2
    TABLE = 3
    CHECKSUM = 4
    REFUSAL = 5
    FETCH_TAIL = 6
    TRUNCATE = 7
    FETCH_TABLES = 8
    EPOCHS = 9
    RANGE = 16
    COMPARE = 17
    RESUME = 18
    REPORT = 19
    SURPLUS = 20
    TAIL = 21
    SLAVE_TABLE = 22
    SLAVE_TABLES_END = 23
    SLAVE_EPOCHS = 24


MEANINGS: Final[dict[FrameType, tuple[str, str]]] = {
    FrameType.LOG: ("first byte's physical offset", "bytes of the log; never across a segment's end"),
    FrameType.STATE: ("end of the master's log", "STATE; the heartbeat, and the answer to RANGE"),
    FrameType.TABLE: ("end of the log that it requires", "length of a name (u8), the name, a content for that table"),
    FrameType.CHECKSUM: ("first byte's physical offset", "CHECKSUM: the answer to COMPARE"),
    FrameType.REFUSAL: ("0", "the reason, UTF-8; the connection ends after it"),
    FrameType.FETCH_TAIL: ("first byte's physical offset", "PIECE: how much of the slave's surplus the master fetches"),
    FrameType.TRUNCATE: (
        "end of the master's log",
        "none; the slave truncates its surplus, it is not fetched",
    ),
    FrameType.FETCH_TABLES: ("0", "none; the master lost its tables and fetches the slave's"),
    FrameType.EPOCHS: ("0", "EPOCH for each epoch of the master's log; version 2, before STATE as the answer to RANGE"),
    FrameType.RANGE: ("end of the slave's log", "RANGE"),
    FrameType.COMPARE: ("first byte's physical offset", "PIECE: the range whose checksum the slave asks for"),
    FrameType.RESUME: ("end of the slave's log", "none; the master sends its log from there on"),
    FrameType.REPORT: ("the slave has everything before it", "REPORT; the acknowledgement, and the slave's heartbeat"),
    FrameType.SURPLUS: ("end of the slave's log", "none; the master's whole log is the beginning of the slave's"),
    FrameType.TAIL: ("first byte's physical offset", "bytes of the slave's log: the answer to FETCH_TAIL"),
    FrameType.SLAVE_TABLE: ("bytes of the table after this piece", "a piece of the body that TABLE would have"),
    FrameType.SLAVE_TABLES_END: ("0", "none; after the last table"),
    FrameType.SLAVE_EPOCHS: ("0", "EPOCH for each epoch of the slave's log; version 2, before RESUME"),
}
HEAD: Final = Layout(
    "head",
    Field("type", "B", "type of the frame, see below"),
    Field("flags", "B", "0"),
    Field("reserved", "H", "0"),
    Field("size_bytes", "I", "bytes of the body"),
    Field("epoch", "q", "the master's epoch, from WELCOME; frames of another epoch do not count"),
    Field("offset", "q", "a physical offset"),
    Field("crc", "I", "CRC-32 of the head before this field and of the body"),
)
STATE: Final = Layout(
    "STATE",
    Field("min_offset", "q", "first byte that the master keeps"),
    Field("confirm_offset", "q", "consumers of the master see the log before it"),
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
    "CHECKSUM", Field("size_bytes", "I", "size of the range in the log"), Field("crc", "I", "its CRC-32")
)
EPOCH: Final = Layout(
    "EPOCH",
    Field("epoch", "q", "the epoch of a master, as controllers numbered it"),
    Field("start_offset", "q", "physical offset at which that master's part of the log begins"),
)
LAYOUTS: Final = (HEAD, STATE, RANGE, REPORT, PIECE, CHECKSUM, EPOCH)

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
# A slave sends little, apart from the bytes that the master asked for.
MAX_SLAVE_BODY_BYTES: Final = 4 * 1024 * 1024
_CRC_BYTES: Final = 4
_CRC: Final = struct.Struct(">I")
_BEFORE_CRC: Final = struct.Struct(HEAD.struct.format[: -len("I")])
_HEAD_BYTES: Final = HEAD.struct.size
# The compiled engine, None with pure Python.
_ENGINE: Final = native("ha.session_frames_native")
if _ENGINE is not None and (_HEAD_BYTES, _HEAD_BYTES + REPORT.struct.size) != (
    _ENGINE.HEAD_BYTES,
    _ENGINE.REPORT_BYTES,
):
    raise ImportError("the compiled engine has other frames than ha/session.py: run `make engine`")
_MAX_ENGINE_BYTES: Final = 0 if _ENGINE is None else _ENGINE.MAX_PIECE_BYTES
_FIRST_OF_SLAVES: Final = FrameType.RANGE
# Types by number, of the frames of masters and of slaves.
_TYPES: Final = [
    {int(kind): kind for kind in FrameType if (kind >= _FIRST_OF_SLAVES) is from_slave} for from_slave in (False, True)
]


class Frame(NamedTuple):
    """One complete frame whose CRC is right."""

    type: FrameType
    epoch: int
    offset: int
    body: memoryview


def frame_head(kind: FrameType, epoch: int, offset: int, body: bytes | memoryview = b"") -> bytes:
    """Return the head of a frame; the body is not copied."""
    start = _BEFORE_CRC.pack(kind, 0, 0, len(body), epoch, offset)
    return start + _CRC.pack(crc32(body, crc32(start)))


def frame(kind: FrameType, epoch: int, offset: int, body: bytes = b"") -> bytes:
    """Return a whole frame with a small body."""
    return frame_head(kind, epoch, offset, body) + body


def log_head(epoch: int, offset: int, piece: memoryview) -> bytes:
    """Return the head of a frame LOG."""
    if _ENGINE is not None and len(piece) <= _MAX_ENGINE_BYTES:
        head: bytes = _ENGINE.log_head(epoch, offset, piece)
        return head
    return frame_head(FrameType.LOG, epoch, offset, piece)


def report(epoch: int, offset: int, flushed_offset: int) -> bytes:
    """Return a whole frame REPORT."""
    if _ENGINE is not None:
        whole: bytes = _ENGINE.report(epoch, offset, flushed_offset)
        return whole
    return frame(FrameType.REPORT, epoch, offset, REPORT.struct.pack(flushed_offset))


class FrameReader(PieceReader[Frame]):
    """Reader of the other end's frames.

    `from_slave` tells which end sends; it decides which types and sizes are allowed.  `feed` raises ProtocolError for
    an unknown type, an offset below 0, a body that is too long, or a wrong CRC.
    """

    def __init__(self, *, from_slave: bool) -> None:
        super().__init__(_HEAD_BYTES)
        self._types = _TYPES[from_slave]
        self._max_bytes = MAX_SLAVE_BODY_BYTES if from_slave else MAX_BODY_BYTES

    def log_pieces(self, data: bytes | memoryview, epoch: int, expected: int) -> list[memoryview] | None:
        """Return the bodies in `data` if it is nothing but whole frames LOG of `epoch` that follow `expected`.

        None, and nothing is read, if it is anything else, and with pure Python: then `feed` reads it.
        """
        if _ENGINE is None or self._rest:
            return None
        found: list[memoryview] | None = _ENGINE.log_pieces(data, epoch, expected)
        return found

    def reported(self, data: bytes, epoch: int) -> tuple[int, int] | None:
        """Do as `log_pieces` for one frame REPORT: return its offset and flushed offset."""
        if _ENGINE is None or self._rest:
            return None
        found: tuple[int, int] | None = _ENGINE.reported(data, epoch)
        return found

    def _content_bytes(self, head: bytearray) -> int:
        number, flags, reserved, size_bytes, _, offset, _ = HEAD.struct.unpack_from(head)
        self._checked(number, flags | reserved, size_bytes, offset)
        return int(size_bytes)

    def _cut(self, view: memoryview) -> tuple[list[Frame], int]:
        frames = []
        at, end, head_bytes = 0, len(view), _HEAD_BYTES
        while at + head_bytes <= end:
            number, flags, reserved, size_bytes, epoch, offset, crc = HEAD.struct.unpack_from(view, at)
            kind = self._checked(number, flags | reserved, size_bytes, offset)
            start = at + head_bytes
            stop = start + size_bytes
            if stop > end:
                break
            body = view[start:stop].toreadonly()
            if crc32(body, crc32(view[at : start - _CRC_BYTES])) != crc:
                raise ProtocolError("ha_frame", f"the CRC of a frame {kind.name} at offset {offset} is wrong")
            frames.append(Frame(kind, epoch, offset, body))
            at = stop
        return frames, at

    def _checked(self, number: int, zeros: int, size_bytes: int, offset: int) -> FrameType:
        kind = self._types.get(number)
        if kind is None or zeros:
            raise ProtocolError("ha_frame", f"no frame begins with {number}")
        if size_bytes > self._max_bytes or offset < 0:
            raise ProtocolError("ha_frame", f"{kind.name} of {size_bytes} bytes at offset {offset}")
        return kind


def encode_history(history: EpochHistory) -> bytes:
    """Return the body of EPOCHS and SLAVE_EPOCHS."""
    return b"".join(EPOCH.struct.pack(epoch.number, epoch.start_offset) for epoch in history.epochs)


def decode_history(body: memoryview) -> EpochHistory:
    """Decode the body of EPOCHS and SLAVE_EPOCHS.  Raises ProtocolError."""
    if len(body) % EPOCH.struct.size or len(body) > MAX_EPOCHS * EPOCH.struct.size:
        raise ProtocolError("ha_epochs", f"{len(body)} bytes are no list of at most {MAX_EPOCHS} epochs")
    return EpochHistory(Epoch(*epoch) for epoch in EPOCH.struct.iter_unpack(body))


def checked_epoch(frames: Sequence[Frame], epoch: int) -> Sequence[Frame]:
    """Return `frames` if all are of `epoch`.  Raises ProtocolError otherwise: another epoch's frames prove nothing."""
    for one in frames:
        if one.epoch != epoch:
            raise ProtocolError("ha_epoch", f"{one.type.name} of the epoch {one.epoch}, this is {epoch}")
    return frames
