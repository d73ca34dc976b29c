"""Frames of a session by the compiled path beside the Python path: the same reads are usual, with the same content."""

from typing import Final

from ha.session import REPORT, FrameReader, FrameType, frame, frame_head
from sprocket.common.errors import ProtocolError
from tests.fuzz.target import Target

try:
    from ha import session_frames_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

EPOCH: Final = 7_000
START: Final = 500
_SIZES: Final = (1, 8, 63, 64, 65, 200)


def _pieces(data: bytes, expected: int) -> list[bytes] | None:
    """Return what `log_pieces` must return."""
    reader = FrameReader(from_slave=False)
    try:
        frames = reader.feed(data)
    except ProtocolError:
        return None
    if not frames or reader.pending_bytes or len(data) > compiled.MAX_PIECE_BYTES:
        return None
    for one in frames:
        if (one.type, one.epoch, one.offset) != (FrameType.LOG, EPOCH, expected) or not one.body:
            return None
        expected += len(one.body)
    return [bytes(one.body) for one in frames]


def _reported(data: bytes) -> tuple[int, int] | None:
    """Return what `reported` must return."""
    reader = FrameReader(from_slave=True)
    try:
        frames = reader.feed(data)
    except ProtocolError:
        return None
    if len(frames) != 1 or reader.pending_bytes or (frames[0].type, frames[0].epoch) != (FrameType.REPORT, EPOCH):
        return None
    if len(frames[0].body) != REPORT.struct.size:
        return None
    (flushed,) = REPORT.unpack(frames[0].body)
    return frames[0].offset, flushed


def compare_reads(data: bytes) -> None:
    """Both engines find the same in a read."""
    for expected in (START, START + 1):
        found = compiled.log_pieces(data, EPOCH, expected)
        assert (None if found is None else [bytes(piece) for piece in found]) == _pieces(data, expected)
        assert found is None or all(piece.readonly for piece in found)
    assert compiled.reported(data, EPOCH) == _reported(data)


def session_frame_twins(data: bytes) -> None:
    """Any bytes, and frames with any damage: what is usual is decided alike; what is written is the same."""
    if compiled is None:
        return
    compare_reads(data)
    number = int.from_bytes(data[:8], "big", signed=True)
    for piece in (data, b""):
        assert compiled.log_head(EPOCH, number, piece) == frame_head(FrameType.LOG, EPOCH, number, piece)
    whole = frame(FrameType.REPORT, EPOCH, number, REPORT.struct.pack(number))
    assert compiled.report(EPOCH, number, number) == whole
    compare_reads(whole)
    stream, offset = b"", START
    for octet in data[:4]:
        # Most frames follow each other; some are of another type or epoch, or leave a gap.
        kind = FrameType.TABLE if octet > 250 else FrameType.LOG
        body = (data * 200)[: _SIZES[octet % len(_SIZES)]] if octet < 245 else b""
        stream += frame(kind, EPOCH + (octet == 244), offset + (octet == 243), body)
        offset += len(body)
    compare_reads(stream)
    for at in range(0, len(stream), 1 + len(stream) // 8):
        damaged = bytearray(stream)
        damaged[at] ^= 1 << at % 8
        compare_reads(bytes(damaged))
        compare_reads(stream[:at])


ENGINE_SESSION_TARGETS: Final = (
    Target(
        "session_frame_twins",
        session_frame_twins,
        [
            frame(FrameType.LOG, EPOCH, START, b"record"),
            frame(FrameType.REPORT, EPOCH, START, bytes(8)),
            bytes(range(40)),
            b"\xf3\xf4\x01\x02",
        ],
        512,
    ),
)
