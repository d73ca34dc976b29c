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
from collections.abc import Callable
from typing import Any, Final

import msgspec

from sprocket.common import limits
from sprocket.remoting.codec.codec_binary import LONG_CODES, short_code
from sprocket.remoting.command import FLAG_RESPONSE, Request
from sprocket.remoting.framing import ROCKETMQ
from sprocket.remoting.headers.base import Header

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


class _ShapeMemory:
    """What decodes headers of forms that were seen before.  Bounded: what is forgotten is learned again."""

    __slots__ = ("_decode", "_misses", "_names", "_shapes")

    def __init__(self, kind: Any, names: set[bytes] | None) -> None:
        self._decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(kind, strict=False).decode
        self._names = names
        # By header length, and what else tells headers apart: the last one learned of each.
        self._shapes: dict[int, _Shape] = {}
        self._misses = 0

    def _missed(self, key: int, header: bytes) -> _Shape | None:
        """The shape of a header that is not like the last one of its key, if it is learned now."""
        self._misses += 1
        return self._learn(key, header) if self._misses % _LEARN_EVERY == 1 else None

    def _learn(self, key: int, header: bytes) -> _Shape | None:
        """The shape of `header`, remembered; None if it is not usual.

        Not usual is what MessagePack would take and the general decoder would not, or would take differently:
        empty values, keys that a struct does not know (their UTF-8 would go unchecked), and too many.
        """
        size = len(header)
        mask, changed = bytearray(size), bytearray(header)
        position, count = _HEAD.size, 0
        while position < size:
            key_stop = position + 2 + header[position + 1] if position + 2 <= size else size
            value_start = key_stop + 4
            name = header[position + 2 : key_stop]
            if header[position] or len(name) > _MOST_KEY_BYTES or value_start > size:
                return None
            if self._names is not None and name not in self._names:
                return None
            (value_bytes,) = _VALUE_LENGTH.unpack_from(header, key_stop)
            if value_bytes <= 0 or value_start + value_bytes > size:
                return None
            mask[position:value_start] = b"\xff" * (value_start - position)
            changed[position:key_stop] = b"%c%b\xdb" % (0xA0 | len(name), name)
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
        self._shapes[key] = shape
        return shape


class TypedBinaryDecoder(_ShapeMemory):
    """Decodes the requests of one route.  It never refuses: what is not usual is left to the general decoder."""

    __slots__ = ("_code", "_short")

    def __init__(self, code: int, header: type[Header]) -> None:
        super().__init__(header, {field.encode_name.encode() for field in msgspec.structs.fields(header)})
        self._code = code
        self._short = short_code(code)

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
            shape = self._missed(size, header)
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


class OpenBinaryDecoder(_ShapeMemory):
    """Decodes requests of any route as far as their fields, which stay texts: for who has to look at them first."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(dict[str, str], None)

    def request(self, header: bytes, body: bytes) -> Request[dict[str, str]] | None:
        """The request, with its fields for a header, or None when the general decoder has to look at it."""
        size = len(header)
        if not _HEAD.size < size <= _MOST_SHAPE_BYTES:
            return None
        code, language, version, opaque, flag, remark_bytes, ext_bytes = _HEAD.unpack_from(header)
        if flag & FLAG_RESPONSE or remark_bytes or ext_bytes != size - _HEAD.size:
            return None
        number = int.from_bytes(header[_MAP_AT:], "big")
        key = (code & 0xFFFF) << 16 | size
        shape = self._shapes.get(key)
        if shape is None or number & shape[0] != shape[1]:
            shape = self._missed(key, header)
            if shape is None:
                return None
        try:
            fields = self._decode((number ^ shape[2]).to_bytes(size - _MAP_AT, "big"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return Request(
            code=LONG_CODES.get(code, code), header=fields, flag=flag, language=_LANGUAGES[language], opaque=opaque,
            version=version, body=body, serialization=ROCKETMQ,
        )  # fmt: skip
