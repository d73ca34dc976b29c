"""Check of many records by a CRC: of the whole record if it has a seal, else of its body.

The rules are those of `store.record.record.decode`; see `store.record.checksum` for seals.
"""

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import CRC_MASK
from store.record.checksum import DAMAGED_SEAL, NO_SEAL, SEAL_BYTES, SEAL_NAME, crc32, sealed_crcs
from store.scan.distinct_names import Integers
from store.scan.heads import Buffer

# A seal counts as no seal if at least three of its bytes differ and are not zero.
_TELLING_PLACES: Final = (0, 1, 7)
# The numbers of so many records fit the processor's cache.
_BLOCK_RECORDS: Final = 2048


def crcs_hold(
    data: memoryview,
    begins: Integers,
    ends: Integers,
    bodies: tuple[Integers, Integers],
    body_crcs: npt.NDArray[np.int32] | Integers,
    claims: Integers,
    *,
    require_seal: bool = False,
) -> npt.NDArray[np.bool_]:
    """Return whether the CRC of each record [`begins`, `ends`) of `data` holds.

    `bodies` are the bounds of the bodies, `claims` the result of `claimed_crcs`.  An empty body matches any CRC.  With
    `require_seal` a record must have a seal.
    """
    is_sealed = claims >= 0
    if is_sealed.all():
        are_right: npt.NDArray[np.bool_] = _crcs(data, begins, ends - SEAL_BYTES) == claims
        return are_right
    from_at, to_at = bodies
    expected = np.where(to_at > from_at, body_crcs, 0)
    if is_sealed.any():
        from_at, to_at = np.where(is_sealed, begins, from_at), np.where(is_sealed, ends - SEAL_BYTES, to_at)
        expected = np.where(is_sealed, claims, expected)
    holds: npt.NDArray[np.bool_] = (_crcs(data, from_at, to_at) == expected) & (claims != DAMAGED_SEAL)
    if require_seal:
        holds &= is_sealed
    return holds


def _crcs(data: memoryview, begins: Integers, ends: Integers) -> npt.NDArray[np.uint32]:
    """Return the CRC, without its top bit, of each [`begins`, `ends`)."""
    # A slice and a call for each record: copying many pieces at once was not faster on memory outside the caches.  In a
    # comprehension the interpreter reuses the memory of the previous slice; `map` allocates new memory.
    computed = np.empty(begins.size, np.uint32)
    for first in range(0, begins.size, _BLOCK_RECORDS):
        block = slice(first, first + _BLOCK_RECORDS)
        bounds = zip(begins[block].tolist(), ends[block].tolist(), strict=True)
        # `array` converts a list in a third of numpy's time.
        computed[block] = np.frombuffer(array("I", [crc32(data[begin:end]) for begin, end in bounds]), np.uintc)
    computed &= CRC_MASK
    return computed


def claimed_crcs(
    octets: Buffer | npt.NDArray[np.uint8], properties_bytes: Integers, properties_ends: Integers
) -> Integers:
    """Return the CRC in the seal of each record, `NO_SEAL`, or `DAMAGED_SEAL`.

    The properties have `properties_bytes` and end at `properties_ends` of `octets`.
    """
    found = np.full(properties_ends.size, NO_SEAL, np.int64)
    if len(octets) < SEAL_BYTES or not properties_ends.size:
        return found
    every: npt.NDArray[np.void] = np.ndarray((len(octets) - SEAL_BYTES + 1,), f"V{SEAL_BYTES}", octets, 0, (1,))
    tails = every[properties_ends - SEAL_BYTES].view(np.uint8).reshape(-1, SEAL_BYTES)
    has_room = properties_bytes >= SEAL_BYTES
    if tails[0].tobytes().startswith(SEAL_NAME):  # then probably all have one
        crcs = sealed_crcs(tails)
        return crcs if has_room.all() else np.where(has_room, crcs, NO_SEAL)
    is_unlike = np.ones(properties_ends.size, np.bool_)
    for place in _TELLING_PLACES:
        is_unlike &= (tails[:, place] != SEAL_NAME[place]) & (tails[:, place] != 0)
    is_like = has_room & ~is_unlike
    if is_like.any():
        found[is_like] = sealed_crcs(tails[is_like])
    return found
