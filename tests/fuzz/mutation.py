"""Damage to bytes, drawn from dice: flips, cuts, repeats, and numbers where lengths usually stand."""

import random
import struct

_NUMBERS = (0, 1, -1, 127, 128, 255, 256, 32767, -32768, 2**24 - 1, 2**31 - 1, -(2**31))
_LARGE = (2**63 - 1, -(2**63), 2**32)


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Return `data` with one to three bits flipped."""
    found = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        found[dice.randrange(len(found))] ^= 1 << dice.randrange(8)
    return bytes(found)


def mutated(data: bytes, dice: random.Random, other: bytes = b"") -> bytes:
    """`data` with one to four changes; `other` is what pieces are taken from."""
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 5)):
        _change(changed, dice, other or data)
    return bytes(changed)


def _change(data: bytearray, dice: random.Random, other: bytes) -> None:
    at = dice.randrange(len(data) + 1)
    kind = dice.randrange(8)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << dice.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = dice.randrange(256)
    elif kind == 2:
        del data[at : at + dice.randrange(1, 9)]
    elif kind == 3:
        data[at:at] = dice.randbytes(dice.randrange(1, 9))
    elif kind == 4:
        number = struct.pack(">i", dice.choice(_NUMBERS))
        size = dice.choice((1, 2, 4))
        data[at : at + size] = number[-size:]
    elif kind == 5:
        data[at : at + 8] = struct.pack(">q", dice.choice(_LARGE))
    elif kind == 6 and other:
        start = dice.randrange(len(other))
        data[at:at] = other[start : start + dice.randrange(1, 40)]
    elif kind == 7:
        del data[at:]
