"""Java's hash of a text, which tag codes, the choice of queues and indexes use."""

import struct


def java_hash_index(text: str, count: int) -> int:
    """Return which of `count` queues a sharding key has."""
    # Java takes the remainder first, whose sign is that of the hash, and then its absolute value.
    return abs(java_hash_code(text)) % count


def java_hash_code(text: str) -> int:
    """Return `String.hashCode`: a signed 32-bit number over UTF-16 units."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = value * 31 + unit & 0xFFFFFFFF
    else:
        for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
            value = value * 31 + unit & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
