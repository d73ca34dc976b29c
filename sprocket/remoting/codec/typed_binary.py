"""Fast decoder of ROCKETMQ headers in their usual form, straight into typed structs.

An entry of extFields and a pair of MessagePack strings have the same size if the key has 1 to 31 bytes and the value
is not empty.  The key's two length bytes and the key become one marker byte and the key.  The byte that is saved marks
the value.  The four length bytes of the value stay::

    00 kk key vv vv vv vv value
    a0|kk key db vv vv vv vv value

So changing bytes in place turns a header into MessagePack, and msgspec decodes it into the struct.
Which bytes change depends only on the lengths, and the headers of one client repeat their lengths.  For known lengths,
the comparison and the change are one operation each on the header as one large integer.
Source: RocketMQ 5.3.3, `RocketMQSerializable`; MessagePack specification, `fixstr`, `str 32`, `map 16`.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from sprocket.common import limits
from sprocket.remoting.codec.codec_binary import LONG_CODES
from sprocket.remoting.command import FLAG_RESPONSE, Request
from sprocket.remoting.framing import ROCKETMQ
from sprocket.remoting.headers.base import Header

# code, language, version, opaque, flag, remark length, extFields length
_HEAD: Final = struct.Struct(">hBhiiii")
_HEAD_BYTES: Final = _HEAD.size
_unpack_head: Final = _HEAD.unpack_from
_VALUE_LENGTH: Final = struct.Struct(">i")
_MAP_BYTES: Final = 3
_MAP_AT: Final = _HEAD_BYTES - _MAP_BYTES
_MAX_KEY_BYTES: Final = 31
# Bounds of the memory for shapes.  Longer headers, and more different lengths, are rare.
_MAX_SHAPE_BYTES: Final = 1024
_MAX_SHAPES: Final = 256
# To learn a shape takes ten times as long as to use one.  A peer whose headers always differ pays for one in 16.
_LEARN_EVERY: Final = 16
_LANGUAGES: Final = tuple(map(str, range(256)))

# Three integers over extFields (bits of keys and lengths, their values, bits to change), then the request code.
_Shape = tuple[int, int, int, int]


class BinaryDecoder:
    """Decoder of headers whose shape was seen before.  It refuses nothing: the general decoder gets what is unusual.

    With a `header` type the fields become that type, else a dict of strings.  The memory is bounded: a forgotten
    shape is learned again.
    """

    __slots__ = ("_decode", "_misses", "_names", "_shapes")

    def __init__(self, header: type[Header] | None = None) -> None:
        kind: Any = dict[str, str] if header is None else header
        self._decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(kind, strict=False).decode
        self._names = None if header is None else {name.encode() for name in header.__struct_encode_fields__}
        # By code and header length: the shape that was learned last.
        self._shapes: dict[int, _Shape] = {}
        self._misses = 0

    def request(self, header: bytes, body: bytes, channel: Any) -> Request[Any] | None:
        """Return the request, or None if the general decoder must read the header."""
        size = len(header)
        if not _HEAD_BYTES < size <= _MAX_SHAPE_BYTES:
            return None
        code, language, version, opaque, flag, remark_bytes, ext_bytes = _unpack_head(header)
        if flag & FLAG_RESPONSE or remark_bytes or ext_bytes != size - _HEAD_BYTES:
            return None
        number = int.from_bytes(header[_MAP_AT:], "big")
        # The code has 16 bits, so no two pairs have the same key.
        key = size << 16 ^ code
        shape = self._shapes.get(key)
        if shape is None or number & shape[0] != shape[1]:
            shape = self._missed(key, code, header)
            if shape is None:
                return None
        try:
            fields = self._decode((number ^ shape[2]).to_bytes(size - _MAP_AT, "big"))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return Request(
            code=shape[3], header=fields, flag=flag, language=_LANGUAGES[language], opaque=opaque, version=version,
            body=body, channel=channel, serialization=ROCKETMQ,
        )  # fmt: skip

    def _missed(self, key: int, code: int, header: bytes) -> _Shape | None:
        """Return the shape of a header that differs from the last one of its key, if it is learned now."""
        self._misses += 1
        return self._learn(key, code, header) if self._misses % _LEARN_EVERY == 1 else None

    def _learn(self, key: int, code: int, header: bytes) -> _Shape | None:
        """Remember the shape of `header` and return it; None if the header is unusual.

        A header is unusual if MessagePack and the general decoder would treat it differently: it has empty values,
        too many fields, or keys that the struct does not know, whose UTF-8 would stay unchecked.
        """
        size = len(header)
        mask, changed = bytearray(size), bytearray(header)
        position, count = _HEAD_BYTES, 0
        while position < size:
            key_stop = position + 2 + header[position + 1] if position + 2 <= size else size
            value_start = key_stop + 4
            name = header[position + 2 : key_stop]
            if header[position] or len(name) > _MAX_KEY_BYTES or value_start > size:
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
        changed[_MAP_AT:_HEAD_BYTES] = b"\xde" + count.to_bytes(2, "big")
        bits = int.from_bytes(mask[_MAP_AT:], "big")
        number = int.from_bytes(header[_MAP_AT:], "big")
        shape = bits, number & bits, number ^ int.from_bytes(changed[_MAP_AT:], "big"), LONG_CODES.get(code, code)
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[key] = shape
        return shape
