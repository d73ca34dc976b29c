"""Frames of a connection after its greeting: size u32, message, tag of 16 bytes.

The tag is the HMAC-SHA256, cut, of the frame's number in its direction and of the message, keyed with the connection's
key.  So a frame is refused that was changed, repeated, left out, or brought from another connection.  Without a secret
the key is no secret either, and the tag is a checksum.
"""

import hmac
import struct
from typing import Final

from ha.raft.messages import MAX_FRAME_BYTES, Message, decode, encode
from sprocket.common.errors import ProtocolError

TAG_BYTES: Final = 16
_SIZE: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")


class Seal:
    """Tags of the frames in one direction; `sender` is the id of the member that sends."""

    def __init__(self, key: bytes, sender: str) -> None:
        self._key = hmac.digest(key, b"from " + sender.encode(), "sha256")
        self._number = 0

    def next_tag(self, content: bytes) -> bytes:
        """Return the tag of the next frame."""
        tag = hmac.digest(self._key, _NUMBER.pack(self._number) + content, "sha256")[:TAG_BYTES]
        self._number += 1
        return tag


class FrameWriter:
    """Encoder of one direction."""

    def __init__(self, key: bytes, sender: str) -> None:
        self._seal = Seal(key, sender)

    def frame(self, message: Message) -> bytes:
        """Return the frame of `message`.  Each is to be sent, once and in this order."""
        content = encode(message)
        return _SIZE.pack(len(content)) + content + self._seal.next_tag(content)


class FrameReader:
    """Decoder of one direction, however the bytes are split."""

    def __init__(self, key: bytes, sender: str) -> None:
        self._seal = Seal(key, sender)
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add `data` and return the messages that are complete with it.  Raises `ProtocolError`."""
        self._held += data
        messages, at = [], 0
        while len(self._held) - at >= _SIZE.size:
            (size_bytes,) = _SIZE.unpack_from(self._held, at)
            if not 0 < size_bytes <= MAX_FRAME_BYTES:
                raise ProtocolError("raft_frame", f"{size_bytes} bytes announced: the maximum is {MAX_FRAME_BYTES}")
            start = at + _SIZE.size
            stop = start + size_bytes
            if len(self._held) < stop + TAG_BYTES:
                break
            content = bytes(self._held[start:stop])
            if not hmac.compare_digest(self._seal.next_tag(content), self._held[stop : stop + TAG_BYTES]):
                raise ProtocolError("raft_frame", "the tag of a frame is wrong")
            messages.append(decode(content))
            at = stop + TAG_BYTES
        del self._held[:at]
        return messages
