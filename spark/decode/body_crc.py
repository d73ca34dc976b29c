"""Check of records by a CRC: of the whole record if the broker wrote one (a seal), else of the body.

Source: RocketMQ 5.3.3, `MessageDecoder.decode`; see `store.record.checksum` for the CRC of whole records.
"""

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt

from spark.decode.binary_array import Positions
from sprocket.remoting.message.record import CRC_MASK
from store.record.checksum import DAMAGED_SEAL, NO_SEAL, SEAL_BYTES, SEAL_NAME, crc32, sealed_crcs

# Bytes of a seal's name.  If each of the three differs and is not zero, the record counts as one without a seal.
_TELLING_PLACES: Final = (0, 1, 7)
_BLOCK_RECORDS: Final = 2048


def crc_holds(
    data: memoryview,
    begins: Positions,
    bodies: tuple[Positions, Positions],
    ends: Positions,
    body_crcs: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    seals: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Return whether the CRC of each record [`begins`, `ends`) of `data` holds; `seals` come from the function `seals`.

    An empty body matches any CRC, as in the store.
    """
    is_sealed = seals >= 0
    if is_sealed.all():
        from_at, to_at, claims = begins, ends - SEAL_BYTES, seals
    else:
        from_at, to_at = bodies
        claims = np.where(to_at > from_at, body_crcs, 0)
        if is_sealed.any():
            from_at = np.where(is_sealed, begins, from_at)
            to_at = np.where(is_sealed, ends - SEAL_BYTES, to_at)
            claims = np.where(is_sealed, seals, claims)
    holds: npt.NDArray[np.bool_] = (_crcs(data, from_at, to_at) == claims & CRC_MASK) & (seals != DAMAGED_SEAL)
    return holds


def _crcs(data: memoryview, begins: Positions, ends: Positions) -> npt.NDArray[np.uint32]:
    """Return the CRC, without its top bit, of each [`begins`, `ends`)."""
    # A slice and a call for each record: no vectorised CRC is faster.  In a comprehension the interpreter reuses the
    # memory of the previous slice; `map` allocates new memory.  The numbers of a block fit the cache.
    computed = np.empty(begins.size, np.uint32)
    for first in range(0, begins.size, _BLOCK_RECORDS):
        block = slice(first, first + _BLOCK_RECORDS)
        bounds = zip(begins[block].tolist(), ends[block].tolist(), strict=True)
        # `array` converts a list in a third of numpy's time.
        computed[block] = np.frombuffer(array("I", [crc32(data[begin:end]) for begin, end in bounds]), np.uintc)
    computed &= CRC_MASK
    return computed


def seals(
    octets: npt.NDArray[np.uint8], properties: Positions, ends: Positions, places: Positions
) -> npt.NDArray[np.int64]:
    """Return the CRC in the seal of each record, NO_SEAL, or DAMAGED_SEAL.

    The properties of a record are [`properties`, `ends`) of the segment, and end at one of `places` in `octets`.
    """
    found = np.full(ends.size, NO_SEAL, np.int64)
    if octets.size < SEAL_BYTES or not ends.size:
        return found
    every = np.ndarray((octets.size - SEAL_BYTES + 1,), f"V{SEAL_BYTES}", octets, 0, (1,))
    tails = every[places - SEAL_BYTES].view(np.uint8).reshape(-1, SEAL_BYTES)
    has_room = ends - properties >= SEAL_BYTES
    if tails[0].tobytes().startswith(SEAL_NAME):  # then probably all have one
        crcs = sealed_crcs(tails)
        return crcs if has_room.all() else np.where(has_room, crcs, NO_SEAL)
    is_unlike = np.ones(ends.size, np.bool_)
    for place in _TELLING_PLACES:
        is_unlike &= (tails[:, place] != SEAL_NAME[place]) & (tails[:, place] != 0)
    is_like = has_room & ~is_unlike
    if is_like.any():
        found[is_like] = sealed_crcs(tails[is_like])
    return found
