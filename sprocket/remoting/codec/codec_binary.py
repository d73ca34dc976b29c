"""The ROCKETMQ serialization of headers.

Source: RocketMQ 5.3.3, `RocketMQSerializable`.  A header is, big-endian::

    code i16, language u8, version i16, opaque i32, flag i32
    remark length i32, remark UTF-8
    extFields length i32 (bytes), then: key length i16, key, value length i32, value
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.common.invariant import invariant
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codes import LanguageCode, RequestCode
from sprocket.remoting.command import VERSION

_FIXED = struct.Struct(">hBhiii")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
# Key length, a key of one byte, value length.
_SHORT_ENTRY = struct.Struct(">hBi")
_LETTERS = tuple(map(chr, range(128)))


class BinaryHeader(NamedTuple):
    """A decoded header."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: dict[str, str]


def decode_header(header: bytes) -> BinaryHeader:
    """Raises ProtocolError for any length that leaves the header, or too many entries."""
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
        position = _FIXED.size
        stop = position + remark_bytes
        if remark_bytes < 0 or stop + 4 > len(header):
            raise ProtocolError("binary_header", f"remark of {remark_bytes} bytes")
        remark = java_text(header[position:stop]) if remark_bytes else None
        (ext_bytes,) = _I32.unpack_from(header, stop)
        position = stop + 4
        if ext_bytes < 0 or position + ext_bytes > len(header):
            raise ProtocolError("binary_header", f"extFields of {ext_bytes} bytes")
        ext_fields = _decode_map(header, position, position + ext_bytes) if ext_bytes else {}
    except struct.error as error:
        raise ProtocolError("binary_header", str(error)) from None
    return BinaryHeader(code, language, version, opaque, flag, remark, ext_fields)


def address_of(header: bytes) -> tuple[int, int, int] | None:
    """Return code, opaque and flag of a header that `decode_header` refuses; None if it is too short for them."""
    if len(header) < _FIXED.size:
        return None
    code, _, _, opaque, flag, _ = _FIXED.unpack_from(header)
    return code, opaque, flag


def _decode_map(header: bytes, position: int, end: int) -> dict[str, str]:
    # Two ways to save calls: a one-letter key, as in a send, is read together with both lengths, and values are
    # slices of one decoded text, which is correct for ASCII.
    fields: dict[str, str] = {}
    whole = header.decode("latin-1")
    short_entry, key_length, value_length = _SHORT_ENTRY.unpack_from, _I16.unpack_from, _I32.unpack_from
    while position < end:
        size, letter, value_bytes = short_entry(header, position) if position + 7 <= end else (0, 0, 0)
        if size == 1 and letter < 128:
            key = _LETTERS[letter]
            position += 7
        else:
            (size,) = key_length(header, position)
            key_stop = position + 2 + size
            if size < 0 or key_stop + 4 > end:
                raise ProtocolError("binary_header", f"key of {size} bytes")
            key = java_text(header[position + 2 : key_stop])
            (value_bytes,) = value_length(header, key_stop)
            position = key_stop + 4
        stop = position + value_bytes
        if value_bytes < 0 or stop > end:
            raise ProtocolError("binary_header", f"value of {value_bytes} bytes")
        # The reference reads an empty text as null.
        if value_bytes:
            value = whole[position:stop]
            fields[key] = value if value.isascii() else java_text(header[position:stop])
        position = stop
        if len(fields) > limits.MAX_EXT_FIELDS:
            raise ProtocolError("ext_fields", f"more than {limits.MAX_EXT_FIELDS} entries")
    return fields


def short_code(code: int) -> int:
    """Return the part of `code` on the wire: its low 16 bits, signed."""
    return (code & 0xFFFF) - (0x10000 if code & 0x8000 else 0)


# Request code by its low 16 bits.  RocketMQ 5.3.3 reads its own client's pop as 3442 and refuses it.  No two codes
# have the same low bits, so Sprocket serves it.
LONG_CODES: Final = {short_code(code): int(code) for code in RequestCode if code > 0xFFFF}
invariant(LONG_CODES.keys().isdisjoint(RequestCode), "two request codes are alike in their low 16 bits")


def encode_header(code: int, opaque: int, flag: int, remark: str | None, ext_fields: Mapping[str, str] | None) -> bytes:
    """Return a header.  Only the low 16 bits of `code` travel, as in the reference."""
    remark_bytes = remark.encode() if remark else b""
    ext = encode_map(ext_fields or {})
    fixed = _FIXED.pack(short_code(code), LanguageCode.PYTHON, VERSION, opaque, flag, len(remark_bytes))
    return b"".join((fixed, remark_bytes, _I32.pack(len(ext)), ext))


def encode_map(fields: Mapping[str, str]) -> bytes:
    """Return the entries of extFields, without the length that stands before them."""
    pieces = []
    for key, value in fields.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        pieces += [_I16.pack(len(key_bytes)), key_bytes, _I32.pack(len(value_bytes)), value_bytes]
    return b"".join(pieces)
