"""CRC-32 of bodies and of whole records.

With enabledAppendPropCRC a record ends with a seal: the property name ``__CRC32#``, 0x01, ten decimal digits (lowest
first), 0x02.  The number is the CRC-32 of all bytes of the record before the seal, with the top bit cleared.
Source: RocketMQ 5.3.3, `CommitLog.CRC32_RESERVED_LEN`, `MessageDecoder.createCrc32`, `UtilAll.crc32`.

Which records have a seal
-------------------------
In RocketMQ the seal is off by default, and a log may hold records of both kinds.  So a record without a seal is valid
if its body's CRC is right (unless forceVerifyPropCRC is set).  A damaged seal must not make a sealed record look like
one without a seal.  So properties are damaged if their last 20 bytes differ from the form of a seal in one or two bytes
that are not zero, or only in zeros: a torn page leaves zeros, a flipped bit changes one byte.  No property looks like
that by chance, and `Appender` refuses those that an application makes so on purpose.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sprocket.remoting.message.properties import VALUE_END_BYTES, VALUE_END_OCTET, encoded_name
from sprocket.remoting.message.record import CRC_MASK

try:
    # Two to four times as fast as zlib at any length from 50 bytes to 16 KiB, the call included.
    from isal.isal_zlib import crc32
except ImportError:  # pragma: no cover - a platform without wheels
    from zlib import crc32

__all__ = [
    "DAMAGED_SEAL",
    "NO_SEAL",
    "SEAL_BYTES",
    "SEAL_NAME",
    "crc32",
    "masked_crc",
    "seal",
    "sealed_crc",
    "seals",
    "with_seals",
]

SEAL_BYTES: Final = 20
# In place of a CRC: the properties end without a seal, or with a damaged one.
NO_SEAL: Final = -1
DAMAGED_SEAL: Final = -2

SEAL_NAME: Final = encoded_name("__CRC32#")
_END: Final = VALUE_END_OCTET
_DIGITS_AT: Final = len(SEAL_NAME)
_MAX_UNLIKE: Final = 2

# A seal backwards, because formatting gives the highest digit first.
_BACKWARDS: Final = VALUE_END_BYTES + b"%010d" + SEAL_NAME[::-1]
# Number of seals formatted at once: each costs half as much as alone.
_SEALS_AT_ONCE: Final = 64

# Allowed values of each byte of a seal, and zero.
_ALIKE: Final = (*(bytes((octet, 0)) for octet in SEAL_NAME), *[b"0123456789\0"] * 10, bytes((VALUE_END_OCTET, 0)))
_HASH_SIGN: Final = ord("#")
_UNDERSCORE: Final = ord("_")


def masked_crc(content: bytes | memoryview) -> int:
    """Return the CRC-32 with the top bit cleared, as everywhere in RocketMQ."""
    return crc32(content) & CRC_MASK


def seal(crc: int) -> bytes:
    """Return the 20 bytes that end a record; `crc` is that of the bytes before them, 0 to 2**31 - 1."""
    return (_BACKWARDS % crc)[::-1]


def seals(crcs: Sequence[int]) -> Sequence[bytes]:
    """Return the seals for many CRCs."""
    count = len(crcs)
    if count == 1:
        return (seal(crcs[0]),)
    if count <= _SEALS_AT_ONCE:
        return _split(count).unpack((_BACKWARDS * count % tuple(crcs[::-1]))[::-1])
    return [one for at in range(0, count, _SEALS_AT_ONCE) for one in seals(crcs[at : at + _SEALS_AT_ONCE])]


def with_seals(records: Sequence[bytes | memoryview], crcs: Sequence[int]) -> bytes:
    """Return `records` joined, each followed by the seal of its CRC."""
    if len(records) == 1:
        return b"".join((records[0], seal(crcs[0])))
    parts: list[bytes | memoryview] = [b""] * (2 * len(records))
    parts[::2] = records
    parts[1::2] = seals(crcs)
    return b"".join(parts)


@lru_cache(maxsize=_SEALS_AT_ONCE)
def _split(count: int) -> struct.Struct:
    return struct.Struct(f"{SEAL_BYTES}s" * count)


def sealed_crc(tail: bytes) -> int:
    """Return the CRC in a seal, `NO_SEAL`, or `DAMAGED_SEAL`; `tail` is the last 20 bytes of some properties."""
    digits = tail[_DIGITS_AT:-1]
    if tail.startswith(SEAL_NAME) and tail[-1] == _END and digits.isdigit():
        return int(digits[::-1])
    if _HASH_SIGN not in tail and _UNDERSCORE not in tail and 0 not in tail:
        return NO_SEAL  # three bytes of the name differ
    unlike = 0
    for octet, alike in zip(tail, _ALIKE, strict=True):
        if octet not in alike:
            unlike += 1
            if unlike > _MAX_UNLIKE:
                return NO_SEAL
    return DAMAGED_SEAL
