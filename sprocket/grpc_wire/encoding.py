"""Fields in protobuf's wire format, for messages that are encoded without protobuf's objects; pure.

Source: protobuf, "Encoding"; the field numbers come from `messaging.proto`.
"""

from functools import lru_cache
from typing import Any, Final

# Wire types.
NUMBER, BYTES = 0, 2
_MASK: Final = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Return a number of at most 64 bits; a negative one as its two's complement."""
    value &= _MASK
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def tag(message: Any, name: str, wire_type: int) -> bytes:
    """Return the bytes before the value of a field; `message` is a class of protobuf."""
    return varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | wire_type)


# Lengths, and most other numbers, without a loop.
VARINTS: Final = [varint(value) for value in range(4096)]
_FEW: Final = len(VARINTS)


def number(value: int) -> bytes:
    """Return `varint` of a value, which is fast for small ones."""
    return VARINTS[value] if 0 <= value < _FEW else varint(value)


def octets(tag: bytes, value: bytes) -> bytes:
    """Return a field with bytes or an encoded message."""
    return tag + number(len(value)) + value


def text(tag: bytes, value: str) -> bytes:
    """Return a field with a text.  Raises UnicodeEncodeError."""
    return octets(tag, value.encode())


# The fields of a Timestamp; the second one by milliseconds.  Both are absent for 0.
SECONDS: Final = varint(1 << 3 | NUMBER)
NANOS: Final = varint(2 << 3 | NUMBER)
_MS_NANOS: Final = [b"", *(NANOS + varint(ms * 1_000_000) for ms in range(1, 1000))]


def encoded_time(milliseconds: int) -> bytes:
    """Return the Timestamp of a time, ms since the epoch."""
    seconds, ms = divmod(milliseconds, 1000)
    return _second(seconds) + _MS_NANOS[ms]


@lru_cache(16)
def _second(seconds: int) -> bytes:
    return SECONDS + varint(seconds) if seconds else b""
