"""A retry topic's message for a consumer that knows only the real topic: with that topic and with its handle.

Source: RocketMQ 5.3.3, `PopMessageProcessor.popMsgFromQueue`, `MessageDecoder.encode`.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.command import Buffer
from sprocket.remoting.message.properties import POP_CK, encode_copy, parse_for_copy
from sprocket.remoting.message.record import MAGIC_V2
from store.record.record import Record, decode, topic_field

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ii")
_SIZE_AND_OFFSET: Final = struct.Struct(">i16xq")
_SHORT_LENGTH: Final = struct.Struct(">h")
_SEAL: Final = "__CRC32#"


def records_in(slices: Sequence[memoryview]) -> Iterator[memoryview]:
    """Yield each record of a read."""
    for piece in slices:
        at = 0
        while at < len(piece):
            size: int = _LENGTH.unpack_from(piece, at)[0]
            yield piece[at : at + size]
            at += size


def queue_offsets_in(slices: Sequence[memoryview]) -> list[int]:
    """Return the queue offset of each record of a read."""
    offsets = []
    for piece in slices:
        at, end = 0, len(piece)
        while at < end:
            size, offset = _SIZE_AND_OFFSET.unpack_from(piece, at)
            offsets.append(offset)
            at += size
    return offsets


def renamed(record: memoryview, topic: str, handle: str) -> Buffer:
    """Return a record with `topic` as its topic and, unless it has one, `handle` in POP_CK.

    A damaged record, or one without room for the handle, is returned unchanged: its receiver finds the damage, or makes
    the handle itself.
    """
    decoded = decode(record, check_crc=False)
    if not isinstance(decoded, Record):
        return record
    original = bytes(decoded.properties)
    properties = parse_for_copy(original)
    properties.setdefault(POP_CK, handle)
    # The CRC is that of the unchanged record.
    properties.pop(_SEAL, None)
    encoded = encode_copy(properties, original)
    if len(encoded) > MAX_PROPERTIES_BYTES:
        return record
    magic, name = topic_field(topic)
    old_name_bytes = (2 if _HEAD.unpack_from(record)[1] == MAGIC_V2 else 1) + len(decoded.topic.encode())
    body_end = len(record) - len(decoded.properties) - _SHORT_LENGTH.size - old_name_bytes
    size = body_end + len(name) + _SHORT_LENGTH.size + len(encoded)
    head = _HEAD.pack(size, magic)
    return b"".join((head, record[_HEAD.size : body_end], name, _SHORT_LENGTH.pack(len(encoded)), encoded))
