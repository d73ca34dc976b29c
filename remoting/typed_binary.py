"""ROCKETMQ headers of the usual form, decoded straight into typed structs.

An entry of extFields and a pair of MessagePack strings take the same room when the key has fewer than 32
bytes and the value has some: the two bytes of the key's length and the key become one byte and the key,
and the byte that this leaves marks the value, whose length of four bytes stays as it is::

    00 kk key vv vv vv vv value
    a0|kk key db vv vv vv vv value

So a header turns into MessagePack by changing bytes in place, and msgspec decodes that into the struct.
Which bytes change depends on the lengths alone.  Headers of one client repeat theirs: for a length that was
seen before, comparing and changing are one operation each on the header as one large integer.
Source: RocketMQ 5.3.3, `RocketMQSerializable`; MessagePack specification, `fixstr`, `str 32`, `map 16`.
"""

import struct
from typing import Any, Final

import msgspec

from remoting.codec_binary import short_code
from remoting.command import FLAG_RESPONSE, Request
from remoting.framing import ROCKETMQ
from remoting.headers.base import Header
from sprocket.common import limits

# code, language, version, opaque, flag, remark length, extFields length
_HEAD: Final = struct.Struct(">hBhiiii")
_VALUE_LENGTH: Final = struct.Struct(">i")
_MAP_BYTES: Final = 3
_MAP_AT: Final = _HEAD.size - _MAP_BYTES
_MOST_KEY_BYTES: Final = 31
# Bounds of what is remembered: headers longer than this are rare, and so are more lengths than this.
_MOST_SHAPE_BYTES: Final = 1024
_MOST_SHAPES: Final = 256
# Learning takes ten times as long as using: peers whose headers differ all the time must not pay for each.
_LEARN_EVERY: Final = 16
_LANGUAGES: Final = tuple(map(str, range(256)))

# (the bits that hold keys and lengths, what they are, what to change): integers over extFields.
_Shape = tuple[int, int, int]


class TypedBinaryDecoder:
    """Decodes the requests of one route.  It never refuses: what is not usual is left to the general decoder."""

    __slots__ = ("_code", "_decode", "_misses", "_names", "_shapes", "_short")

    def __init__(self, code: int, header: type[Header]) -> None:
        self._code = code
        self._short = short_code(code)
        self._decode = msgspec.msgpack.Decoder(header, strict=False).decode
        self._names = {field.encode_name.encode() for field in msgspec.structs.fields(header)}
        # By header length: the last one learned of each.
        self._shapes: dict[int, _Shape] = {}
        self._misses = 0

    def request(self, header: bytes, body: bytes, channel: Any) -> Request[Any] | None:
        """The request, or None when the general decoder has to look at it."""
        size = len(header)
        if not _HEAD.size < size <= _MOST_SHAPE_BYTES:
            return None
        code, language, version, opaque, flag, remark_bytes, ext_bytes = _HEAD.unpack_from(header)
        if code != self._short or flag & FLAG_RESPONSE or remark_bytes or ext_bytes != size - _HEAD.size:
            return None
        number = int.from_bytes(header[_MAP_AT:], "big")
        shape = self._shapes.get(size)
        if shape is None or number & shape[0] != shape[1]:
            self._misses += 1
            shape = self._learn(header) if self._misses % _LEARN_EVERY == 1 else None
            if shape is None:
                return None
        try:
            fields = self._decode((number ^ shape[2]).to_bytes(size - _MAP_AT, "big"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return Request(
            code=self._code, header=fields, flag=flag, language=_LANGUAGES[language], opaque=opaque, version=version,
            body=body, channel=channel, serialization=ROCKETMQ,
        )  # fmt: skip

    def _learn(self, header: bytes) -> _Shape | None:
        """The shape of `header`, remembered; None if it is not usual.

        Not usual is what MessagePack would take and the general decoder would not, or would take differently:
        empty values, keys that the struct does not know (their UTF-8 would go unchecked), and too many.
        """
        size = len(header)
        mask, changed = bytearray(size), bytearray(header)
        position, count = _HEAD.size, 0
        while position < size:
            key_stop = position + 2 + header[position + 1] if position + 2 <= size else size
            value_start = key_stop + 4
            key = header[position + 2 : key_stop]
            if header[position] or len(key) > _MOST_KEY_BYTES or value_start > size or key not in self._names:
                return None
            (value_bytes,) = _VALUE_LENGTH.unpack_from(header, key_stop)
            if value_bytes <= 0 or value_start + value_bytes > size:
                return None
            mask[position:value_start] = b"\xff" * (value_start - position)
            changed[position:key_stop] = b"%c%b\xdb" % (0xA0 | len(key), key)
            position = value_start + value_bytes
            count += 1
        if count > limits.MAX_EXT_FIELDS:
            return None
        changed[_MAP_AT : _HEAD.size] = b"\xde" + count.to_bytes(2, "big")
        bits = int.from_bytes(mask[_MAP_AT:], "big")
        number = int.from_bytes(header[_MAP_AT:], "big")
        shape = bits, number & bits, number ^ int.from_bytes(changed[_MAP_AT:], "big")
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[size] = shape
        return shape
