"""Search for the begins of all records in a part of the log, at a few nanoseconds per record.

A segment is a chain: each record holds its size, and the next record begins after it.  Following the chain one by one
costs a round trip through the interpreter per record.  Here many cursors follow it in lock-step, one gather per step.
Start points are found by magic number and own physical offset.  The positions of a cursor count only if the cursor
before it ends at its start: bytes of a body that imitate a record are never accepted as one.
"""

import struct
from array import array
from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_AT,
)
from store.layout import HEAD

Positions = npt.NDArray[np.int64]


_MAGIC_FIRST: Final = struct.pack(">i", MAGIC_V1)[0]
assert struct.pack(">i", MAGIC_V2)[0] == _MAGIC_FIRST
# As a little-endian processor reads them: comparisons need no byte swap.
_NATIVE_MAGICS: Final = [int.from_bytes(struct.pack(">i", magic), "little") for magic in (MAGIC_V1, MAGIC_V2)]
_SIZE_AND_MAGIC: Final = struct.Struct(">Ii")
# Number of records followed one by one at first: they give the size of records, which decides how to go on.
_SAMPLE_RECORDS: Final = 32
# Fewer records than this are cheaper to follow one by one than to find start points for.
_FEW_RECORDS: Final = 600
# Records per cursor: more need more steps, fewer need more start points.
_RECORDS_A_CURSOR: Final = 28
_MAX_CURSORS: Final = 2048
# A start point is searched for in the front of a part; the front has the length of this many records.  If no record
# begins in the front, the cursor before it continues through the part.
_FRONT_RECORDS: Final = 1.5
# Steps of all cursors between two counts of the cursors that have not ended.
_STEPS: Final = 4
# If no more cursors than this are left, the rest of their parts is followed one by one.
_FEW_CURSORS: Final = 16


class Chain(NamedTuple):
    """Positions of records that follow one another, and the first position that does not continue the chain."""

    positions: Positions
    stop: int


def chain(segment: memoryview, base: int, end: int) -> Chain:
    """Return the records of `walk`: all of them have the magic number and a size that fits `segment`."""
    positions = walk(segment, base, end)
    if not positions.size:
        return Chain(positions, 0)
    magics = np.ndarray((len(segment) - 3 - MAGIC_AT,), "<u4", segment, MAGIC_AT, (1,))[positions]
    is_record = (magics == _NATIVE_MAGICS[0]) | (magics == _NATIVE_MAGICS[1])
    # Each record ends where the next one begins, so only the last size has to be read.
    last = int(positions[-1])
    last_end = last + int.from_bytes(segment[last : last + 4], "big")
    is_record[:-1] &= np.diff(positions) >= MIN_RECORD_BYTES
    is_record[-1] &= MIN_RECORD_BYTES <= last_end - last <= len(segment) - last
    if is_record.all():
        return Chain(positions, last_end)
    broken = int(np.argmin(is_record))
    return Chain(positions[:broken], int(positions[broken]))


def walk(segment: memoryview, base: int, end: int) -> Positions:
    """Return the positions, in order, of the chain of records that begins at byte 0 of `segment`, before `end`.

    `base` is the physical offset of byte 0.  The last positions may not be records: only sizes are followed, and the
    caller checks the records.  Reads nothing outside `segment`; uses O(`end`) memory whatever the bytes are.
    """
    end = min(end, len(segment) - BLANK_MIN_BYTES + 1)
    pieces = []
    at, count = 0, _SAMPLE_RECORDS
    while 0 <= at < end:
        piece, following = _one_by_one(segment, at, end, count)
        pieces.append(piece)
        record_bytes = max((following - at) // piece.size, MIN_RECORD_BYTES)
        at, count = following, _FEW_RECORDS
        if 0 <= at < end - _FEW_RECORDS * record_bytes:
            pieces.append(_in_lock_step(segment, base, at, end, record_bytes))
            break
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _one_by_one(
    segment: memoryview, at: int, end: int, count: int, stops: Collection[int] = ()
) -> tuple[Positions, int]:
    """Return up to `count` positions of the chain from `at` to before `end` or one of `stops`, and the next position.

    The next position is -1 if the last position is not that of a record.
    """
    size_and_magic_at = _SIZE_AND_MAGIC.unpack_from
    positions = array("q")
    add = positions.append
    for _ in range(count):
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
    """Return the chain from `begin` to before `end`: many records of about `record_bytes` each."""
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
    """Return `begin`, and the first record in the front of each further part of [`begin`, `end`) that has one."""
    count = min((end - begin) // (record_bytes * _RECORDS_A_CURSOR), _MAX_CURSORS)
    part_bytes = (end - begin) // max(count, 1)
    front_bytes = min(int(record_bytes * _FRONT_RECORDS), part_bytes - HEAD.size)
    if count < 2 or front_bytes <= 0:
        return np.array([begin], np.int64)
    shape, first = (count - 1, front_bytes), begin + part_bytes
    fronts = np.ndarray(shape, np.uint8, segment, first + MAGIC_AT, (part_bytes, 1))
    places = np.flatnonzero(fronts == _MAGIC_FIRST)
    parts = places // front_bytes
    positions = first + places + parts * (part_bytes - front_bytes)
    last = len(segment) - HEAD.size
    magics = np.ndarray((last + 1,), ">i4", segment, MAGIC_AT, (1,))[positions]
    offsets = np.ndarray((last + 1,), ">i8", segment, PHYSICAL_OFFSET_AT, (1,))[positions]
    is_record = ((magics == MAGIC_V1) | (magics == MAGIC_V2)) & (offsets == positions + base)
    positions, parts = positions[is_record], parts[is_record]
    return np.append(begin, positions[np.diff(parts, prepend=-1) > 0])


def _follow(sizes: npt.NDArray[np.uint32], starts: Positions, stops: Positions) -> Positions:
    """Return a row for each of `starts`: its positions step by step; after the last, its stop if it was reached."""
    max_left = max(_FEW_CURSORS, starts.size // _FEW_CURSORS)
    blocks = [starts[None, :]]
    cursors, steps = starts, _RECORDS_A_CURSOR
    going = starts.size
    while going > max_left:
        block = np.empty((steps, starts.size), np.int64)
        before = cursors
        for row in block:
            np.add(cursors, sizes[cursors], out=row)
            cursors = np.minimum(row, stops, out=row)
        blocks.append(block)
        # Not counted is a cursor that makes too little progress: in bytes that are not records it may never end.
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
    """Return the one chain in the cursors' positions.

    Cursor i found the `positions` from ``pasts[i - 1]`` to before ``pasts[i]``; its next position is ``ends[i]``.  If
    that is not the start of the next cursor (`breaks`, and always the last cursor), the chain is followed one by one
    until it meets a start.  Positions of the cursors in between are not part of the chain.
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
