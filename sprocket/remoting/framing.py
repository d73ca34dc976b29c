"""Frames of the remoting protocol, cut from a byte stream.

Source: RocketMQ 5.3.3, `NettyDecoder`, `RemotingCommand.decode`.  A frame is::

    length        i32   bytes that follow, this field not included
    header_word   u8 serialization (0 JSON, 1 ROCKETMQ), then u24 header length
    header        header length bytes
    body          length - 4 - header length bytes
"""

import struct
from collections.abc import Sequence

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.engine.choice import native

JSON = 0
ROCKETMQ = 1

_PREFIX = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
# Smaller pieces of a frame are joined at once, up to the second size.
_SMALL_BYTES = 4096
_GROWN_BYTES = 64 * 1024
# A header of up to this size cannot exceed the permitted number of fields: in JSON each takes five bytes, `"":0,`.
LARGE_HEADER_BYTES = limits.MAX_EXT_FIELDS * 5
# The largest header word of a known serialization.
_MAX_WORD = 0x1FFFFFF
# First bytes of a header that name its route: codes of two or three digits, codes of six, and the low 16 bits of a
# ROCKETMQ header's code.
PREFIX_BYTES = 12
LONG_PREFIX_BYTES = 15
BINARY_CODE_BYTES = 2

_native = native("sprocket.remoting.read_frames_native")
# The compiled loop over whole usual frames, if it is in use.
_cut_compiled = None if _native is None else _native.cut

# One whole frame, its header not yet decoded: serialization, header, body.  A plain tuple because a named
# one takes three times as long to make, and there is one per message.
Frame = tuple[int, bytes, bytes]
# The frames of one read: a list, or `sprocket.remoting.read_frames_native.ReadFrames`, which makes a tuple for each
# frame that is asked for.  So what serves usual frames asks for none of them.
Frames = Sequence[Frame]


def _start_of(frames: Frames, index: int) -> tuple[int, bytes]:
    """Return serialization and first bytes of the header at `index`: as far as they name the route."""
    serialization, header, _ = frames[index]
    return serialization, header[: LONG_PREFIX_BYTES if serialization == JSON else BINARY_CODE_BYTES]


start_of = _start_of if _native is None else _native.start_of


def frame_prefix(serialization: int, header_bytes: int, body_bytes: int) -> bytes:
    """Return the eight bytes that stand before a header."""
    return _PREFIX.pack(4 + header_bytes + body_bytes, serialization << 24 | header_bytes)


class FrameDecoder:
    """Cuts whole frames out of a stream that arrives in pieces of any size.

    Pure: it takes bytes and returns frames.  After `error` is set, the rest of the stream has no meaning: serve the
    frames before it, then close the connection.  `pending_bytes` belong to an incomplete frame; they never exceed the
    limit by more than one read.  `has_large_header` is set by a frame whose header has more than `LARGE_HEADER_BYTES`:
    the caller must then count its fields.
    """

    __slots__ = (
        "_missing",
        "_pieces",
        "error",
        "has_large_header",
        "large_header_bytes",
        "max_frame_bytes",
        "max_header_bytes",
        "pending_bytes",
    )

    def __init__(
        self, max_frame_bytes: int = limits.MAX_FRAME_BYTES, max_header_bytes: int = limits.MAX_HEADER_BYTES
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.max_header_bytes = max_header_bytes
        self.pending_bytes = 0
        self.error: ProtocolError | None = None
        self.has_large_header = False
        self.large_header_bytes = min(max_header_bytes, LARGE_HEADER_BYTES)
        self._pieces: list[bytes | bytearray] = []
        self._missing = 0  # bytes until the pending frame, or its length field, is whole

    def feed(self, data: bytes) -> Frames:
        """Return all frames that `data` completes, in order; then look at `error`."""
        if self.error is not None:
            return []
        if self._pieces:
            self._keep(data)
            if len(data) < self._missing:
                self._missing -= len(data)
                return []
            # Joined once per frame, not once per read: a 4 MiB frame costs one copy.
            data = b"".join(self._pieces)
            self._pieces.clear()
            self.pending_bytes = 0
        usual: Frames = ()
        position = 0
        if _cut_compiled is not None and type(data) is bytes:
            usual = found = _cut_compiled(data, self.max_frame_bytes, self.large_header_bytes)
            position = found.end
            if position == len(data):
                return usual
        others: list[Frame] = []
        try:
            position = self._cut(data, position, others)
        except ProtocolError as error:
            self.error = error
        else:
            if position < len(data):
                rest = data[position:] if position else data
                self._pieces.append(rest)
                self.pending_bytes = len(rest)
        if not usual:
            return others
        return [*usual, *others] if others else usual

    def fail(self, error: ProtocolError) -> None:
        """Return no more frames: the peer's bytes are no frames that may be served."""
        self.error = error

    def note_checked(self) -> None:
        """Note that the frames with large headers were checked."""
        self.has_large_header = False

    def _keep(self, data: bytes) -> None:
        """Add `data` to the pending pieces.  Small pieces grow together: one object for each would cost far more."""
        self.pending_bytes += len(data)
        last = self._pieces[-1]
        if len(data) >= _SMALL_BYTES or len(last) >= _GROWN_BYTES:
            self._pieces.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._pieces.append(bytearray(data))

    def _cut(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """Append the whole frames of `data` from `position` on to `frames`.  Return the position after the last one."""
        end = len(data)
        unpack = _PREFIX.unpack_from
        max_frame_bytes = self.max_frame_bytes
        large_bytes = self.large_header_bytes
        append = frames.append
        while end - position >= 8:
            length, word = unpack(data, position)
            header_start = position + 8
            body_start = header_start + (word & 0xFFFFFF)
            stop = position + 4 + length
            # The length is below 4, or the header is longer than its frame.
            if body_start > stop or length > max_frame_bytes or word > _MAX_WORD:
                self._refuse(length, word)
            if body_start - header_start > large_bytes:
                if body_start - header_start > self.max_header_bytes:
                    detail = f"{word & 0xFFFFFF} bytes, at most {self.max_header_bytes}"
                    raise ProtocolError("header_length", detail)
                self.has_large_header = True
            if stop > end:
                self._missing = stop - end
                return position
            append((word >> 24, data[header_start:body_start], data[body_start:stop]))
            position = stop
        if position < end:
            self._check_partial_prefix(data, position, end)
        return position

    def _check_partial_prefix(self, data: bytes, position: int, end: int) -> None:
        """Refuse a bad length as soon as it arrives, even before the header word."""
        self._missing = (8 if end - position >= 4 else 4) - (end - position)
        if end - position >= 4:
            (length,) = _LENGTH.unpack_from(data, position)
            if not 4 <= length <= self.max_frame_bytes:
                self._refuse(length, 0)

    def _refuse(self, length: int, word: int) -> None:
        if not 4 <= length <= self.max_frame_bytes:
            raise ProtocolError("frame_length", f"{length} bytes, at least 4 and at most {self.max_frame_bytes}")
        if word >> 24 > ROCKETMQ:
            raise ProtocolError("serialization", f"type {word >> 24} is neither 0 (JSON) nor 1 (ROCKETMQ)")
        raise ProtocolError("header_length", f"{word & 0xFFFFFF} bytes in a frame of {length}")
