"""Positions of a subscription in RocketMQ's bloom filter; RocketMQ loads no consumerFilter.json without them.

Sprocket calculates no bit maps (enableCalcFilterBitMap, enableConsumeQueueExt).
Source: RocketMQ 5.3.3, `BloomFilter`, `BrokerConfig.maxErrorRateOfBloomFilter`, `expectConsumerNumUseFilter`; Guava,
`Hashing.murmur3_128`.
"""

import struct
from typing import Final

# From RocketMQ's defaults: 20 % of errors with 32 consumers.
HASHES: Final = 3
BITS: Final = 112

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")


def bloom_positions(group: str, topic: str) -> list[int]:
    """Return the `HASHES` bit positions of a group's subscription to a topic, each below `BITS`."""
    low, _ = _murmur3_128(f"{group}#{topic}".encode())
    first, second = low & 0xFFFFFFFF, low >> 32
    positions = []
    for number in range(1, HASHES + 1):
        combined = (first + number * second) & 0xFFFFFFFF
        positions.append((~combined & 0xFFFFFFFF if combined >> 31 else combined) % BITS)
    return positions


def _murmur3_128(data: bytes) -> tuple[int, int]:
    """Return the x64 form of MurmurHash3 with seed 0."""
    low = high = 0
    whole = len(data) - len(data) % _BLOCK.size
    for one, two in _BLOCK.iter_unpack(data[:whole]):
        low = (_rotate(low ^ _mix_first(one), 27) + high) * 5 + 0x52DCE729 & _MASK
        high = (_rotate(high ^ _mix_second(two), 31) + low) * 5 + 0x38495AB5 & _MASK
    one, two = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    low, high = low ^ _mix_first(one) ^ len(data), high ^ _mix_second(two) ^ len(data)
    low = low + high & _MASK
    high = low + high & _MASK
    low, high = _finish(low), _finish(high)
    low = low + high & _MASK
    return low, low + high & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix_first(value: int) -> int:
    return _rotate(value * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_second(value: int) -> int:
    return _rotate(value * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
