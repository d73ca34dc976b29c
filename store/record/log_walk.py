"""Finds where the records of a stretch of the log begin, at a few nanoseconds per record.

A segment is a chain: each record says its size, and the next begins behind it.  Following the chain one by one
costs a round trip through the interpreter per record.  Here many cursors follow it in lock-step, one gather a
step.  Their start points are found by magic number and own physical offset, and what they give counts only as
far as each begins where the one before it ends: bytes of a body that imitate a record are never taken for one.
"""

import struct
from array import array
from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import BLANK_MIN_BYTES, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from store.layout import HEAD

Positions = npt.NDArray[np.int64]

_MAGIC_AT: Final = 4
_PHYSICAL_OFFSET_AT: Final = 28
_MAGIC_FIRST: Final = struct.pack(">i", MAGIC_V1)[0]
assert struct.pack(">i", MAGIC_V2)[0] == _MAGIC_FIRST
_SIZE_AND_MAGIC: Final = struct.Struct(">Ii")
# So many records are followed one by one before it is decided how to go on: they tell how large records are.
_SAMPLE_RECORDS: Final = 32
# Fewer than that are cheaper to follow one by one than to find start points for.
_FEW_RECORDS: Final = 600
# A cursor for so many records: more make more steps, fewer make more start points to be found.
_RECORDS_A_CURSOR: Final = 28
_MAX_CURSORS: Final = 2048
# A start point is looked for in a part's front, of so many records' length.  Where none begins in it, the cursor
# before goes on through the part.
_FRONT_RECORDS: Final = 1.5
# After that many steps of all cursors those that are not at their end are looked at.
_STEPS: Final = 4
# So few cursors are not worth steps of their own: what is left of their parts is followed one by one.
_FEW_CURSORS: Final = 16


def walk(segment: memoryview, base: int, end: int) -> Positions:
    """Positions in `segment` of the chain that begins at 0, of records that begin before `end`, in order.

    `base` is the physical offset of byte 0.  The last positions may be none of records: only sizes are followed,
    the caller checks the records.  Reads nothing outside `segment`; takes O(`end`) memory whatever the bytes are.
    """
    end = min(end, len(segment) - BLANK_MIN_BYTES + 1)
    pieces = []
    at, most = 0, _SAMPLE_RECORDS
    while 0 <= at < end:
        piece, following = _one_by_one(segment, at, end, most)
        pieces.append(piece)
        record_bytes = max((following - at) // piece.size, MIN_RECORD_BYTES)
        at, most = following, _FEW_RECORDS
        if 0 <= at < end - _FEW_RECORDS * record_bytes:
            pieces.append(_in_lock_step(segment, base, at, end, record_bytes))
            break
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _one_by_one(
    segment: memoryview, at: int, end: int, most: int, stops: Collection[int] = ()
) -> tuple[Positions, int]:
    """`most` positions of the chain from `at` to before `end`, or those before one of `stops`, and what follows them:
    -1 behind the first that is none of a record."""
    size_and_magic_at = _SIZE_AND_MAGIC.unpack_from
    positions = array("q")
    add = positions.append
    for _ in range(most):
        if at >= end or at in stops:
            break
        add(at)
        size, magic = size_and_magic_at(segment, at)
        if size < MIN_RECORD_BYTES or (magic != MAGIC_V1 and magic != MAGIC_V2):
            at = -1
            break
        at += size
    return np.array(positions, np.int64), at


def _in_lock_step(segment: memoryview, base: int, begin: int, end: int, record_bytes: int) -> Positions:
    """The chain from `begin` to before `end`, of many records of about `record_bytes`."""
    starts = _start_points(segment, base, begin, end, record_bytes)
    sizes = np.ndarray((len(segment) - 3,), ">u4", segment, 0, (1,))
    stops = np.append(starts[1:], end)
    rows = _follow(sizes, starts, stops)
    held = rows < stops[:, None]
    positions: Positions = rows[held]
    pasts = np.cumsum(np.count_nonzero(held, axis=1))
    lasts = positions[pasts - 1]
    ends: Positions = lasts + sizes[lasts]
    breaks = np.append(np.flatnonzero(ends[:-1] != starts[1:]), starts.size - 1)
    if breaks.size == 1 and ends[-1] >= end:
        return positions
    return _joined(segment, positions, starts, pasts, ends, end, breaks)


def _start_points(segment: memoryview, base: int, begin: int, end: int, record_bytes: int) -> Positions:
    """`begin`, and in each further part of [`begin`, `end`) the first record, if there is one in the part's front."""
    count = min((end - begin) // (record_bytes * _RECORDS_A_CURSOR), _MAX_CURSORS)
    part_bytes = (end - begin) // max(count, 1)
    front_bytes = min(int(record_bytes * _FRONT_RECORDS), part_bytes - HEAD.size)
    if count < 2 or front_bytes <= 0:
        return np.array([begin], np.int64)
    shape, first = (count - 1, front_bytes), begin + part_bytes
    fronts = np.ndarray(shape, np.uint8, segment, first + _MAGIC_AT, (part_bytes, 1))
    places = np.flatnonzero(fronts == _MAGIC_FIRST)
    parts = places // front_bytes
    positions = first + places + parts * (part_bytes - front_bytes)
    last = len(segment) - HEAD.size
    magics = np.ndarray((last + 1,), ">i4", segment, _MAGIC_AT, (1,))[positions]
    offsets = np.ndarray((last + 1,), ">i8", segment, _PHYSICAL_OFFSET_AT, (1,))[positions]
    is_record = ((magics == MAGIC_V1) | (magics == MAGIC_V2)) & (offsets == positions + base)
    positions, parts = positions[is_record], parts[is_record]
    return np.append(begin, positions[np.diff(parts, prepend=-1) > 0])


def _follow(sizes: npt.NDArray[np.uint32], starts: Positions, stops: Positions) -> Positions:
    """A row for each of `starts`: it and what follows it, step by step, in the end its stop if it has come so far."""
    most_left = max(_FEW_CURSORS, starts.size // _FEW_CURSORS)
    blocks = [starts[None, :]]
    cursors, steps = starts, _RECORDS_A_CURSOR
    going = starts.size
    while going > most_left:
        block = np.empty((steps, starts.size), np.int64)
        before = cursors
        for row in block:
            np.add(cursors, sizes[cursors], out=row)
            cursors = np.minimum(row, stops, out=row)
        blocks.append(block)
        # One among bytes of no record may go on through them for long, or for ever.
        going = int(np.count_nonzero((cursors < stops) & (cursors - before >= steps * MIN_RECORD_BYTES)))
        steps = _STEPS
    return np.concatenate([block.T for block in blocks], axis=1)


def _joined(
    segment: memoryview,
    positions: Positions,
    starts: Positions,
    pasts: Positions,
    ends: Positions,
    end: int,
    breaks: Positions,
) -> Positions:
    """The one chain in what the cursors found.

    Cursor i found the `positions` before `pasts`[i] and behind those of the one before; the next is at `ends`[i].
    Where that is not the start of the following cursor (`breaks`, and always the last cursor) the chain is followed one
    by one until it comes upon a start; what those in between found is no part of it.
    """
    places = {start: cursor for cursor, start in enumerate(starts.tolist())}
    pieces = []
    cursor = 0
    while True:
        broken = int(breaks[np.searchsorted(breaks, cursor)])
        pieces.append(positions[pasts[cursor - 1] if cursor else 0 : pasts[broken]])
        if ends[broken] - pieces[-1][-1] < MIN_RECORD_BYTES:
            return np.concatenate(pieces)
        piece, at = _one_by_one(segment, int(ends[broken]), end, end, places)
        pieces.append(piece)
        if at not in places:
            return np.concatenate(pieces)
        cursor = places[at]
