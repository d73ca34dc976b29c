"""Finds where the records of a stretch of the log begin, at a few nanoseconds per record.

A segment is a chain: each record says its size, and the next begins behind it.  Following the chain one by one
costs a round trip through the interpreter per record.  Here many cursors follow it in lock-step, one gather a
step.  Their start points are found by magic number and own physical offset, and what they give counts only as
far as each position is where the one before it ends: bytes of a body that imitate a record are never taken for one.
"""

import re
import struct
from array import array
from typing import Final

import numpy as np
import numpy.typing as npt

from remoting.message_record import BLANK_MIN_BYTES, MAGIC_V1, MAGIC_V2
from store.layout import HEAD
from store.record import MIN_RECORD_BYTES

Positions = npt.NDArray[np.int64]

_MAGIC_AT: Final = 4
_PHYSICAL_OFFSET_AT: Final = 28
# The two differ in their last byte.  A literal in front is what makes the search fast.
_MAGIC_BYTES: Final = [struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2)]
_MAGIC: Final = re.compile(
    re.escape(_MAGIC_BYTES[0][:3]) + b"[" + re.escape(_MAGIC_BYTES[0][3:] + _MAGIC_BYTES[1][3:]) + b"]"
)
_PHYSICAL_OFFSET: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">I")
# One cursor for each part.  A start point is looked for in a part's front only: with records so large that
# it is often missed, few of them lie between two start points.
_PART_BYTES: Final = 64 * 1024
_SEARCH_BYTES: Final = 4 * 1024
# Cursors are looked after once in so many steps.
_STEPS: Final = 16
# Stretches of few records are followed by one cursor in the interpreter, longer ones by the places of magic numbers:
# many cursors, of which each has a part, are worth their steps only where the parts are many.
_FEW_RECORDS: Final = 1500
# Bytes that are searched at once: what is made of them does not grow with the stretch.
_BLOCK_BYTES: Final = 1024 * 1024
_FEW_PARTS: Final = 32


def walk(segment: memoryview, base: int, end: int) -> Positions:
    """Positions in `segment` of the chain that begins at 0, of records that begin before `end`, in order.

    `base` is the physical offset of byte 0.  The last positions may be none of records: only sizes are followed,
    the caller checks the records.  Reads nothing outside `segment`; takes O(`end`) memory whatever the bytes are.
    """
    last = len(segment) - BLANK_MIN_BYTES
    end = min(end, last + 1)
    if end <= 0:
        return np.empty(0, np.int64)
    if end <= _FEW_RECORDS * max(_SIZE.unpack_from(segment)[0], MIN_RECORD_BYTES) or len(segment) < HEAD.size:
        return _follow_one(segment, end)
    if end <= _FEW_PARTS * _PART_BYTES:
        return _by_magic(segment, base, end)
    # Unsigned, so that no cursor runs backwards.
    sizes = np.ndarray((last + 1,), ">u4", segment, 0, (1,))
    magics = np.ndarray((last + 1,), ">i4", segment, _MAGIC_AT, (1,))
    starts = np.array(_start_points(segment, base, end), np.int64)
    positions = _follow(sizes, magics, starts, np.append(starts[1:], end))
    # The cursors' ranges do not overlap: sorted, their positions are one chain if all start points are in it.
    positions.sort()
    breaks = np.flatnonzero(positions[:-1] + sizes[positions[:-1]] != positions[1:])
    return positions[: breaks[0] + 1] if breaks.size else positions


def _follow_one(segment: memoryview, end: int) -> Positions:
    """Follow the chain from 0 to before `end`, or to the first size that is none of a record."""
    size_at = _SIZE.unpack_from
    positions = array("q")
    add = positions.append
    at = 0
    while at < end:
        add(at)
        (size,) = size_at(segment, at)
        if size < MIN_RECORD_BYTES:
            break
        at += size
    return np.frombuffer(positions, np.int64)


def _by_magic(segment: memoryview, base: int, end: int) -> Positions:
    """The chain from 0 to before `end`, as far as it goes through places that begin like a record.

    A body that imitates a record, with the physical offset it would have there, ends the chain before it.
    """
    last = len(segment) - BLANK_MIN_BYTES
    octets = np.frombuffer(segment, np.uint8, min(end, last + 1), _MAGIC_AT)
    blocks = range(0, octets.size, _BLOCK_BYTES)
    found = [np.flatnonzero(octets[at : at + _BLOCK_BYTES] == _MAGIC_BYTES[0][0]) + at for at in blocks]
    positions: Positions = np.concatenate(found)
    magics = np.ndarray((last + 1,), ">i4", segment, _MAGIC_AT, (1,))[positions]
    positions = positions[(magics == MAGIC_V1) | (magics == MAGIC_V2)]
    positions = positions[positions <= len(segment) - HEAD.size]
    own = np.ndarray((len(segment) - HEAD.size + 1,), ">i8", segment, _PHYSICAL_OFFSET_AT, (1,))[positions]
    positions = positions[own == positions + base]
    if not positions.size or positions[0]:
        return np.zeros(1, np.int64)
    sizes = np.ndarray((last + 1,), ">u4", segment, 0, (1,))
    breaks = np.flatnonzero(positions[:-1] + sizes[positions[:-1]] != positions[1:])
    return positions[: breaks[0] + 1] if breaks.size else positions


def _start_points(segment: memoryview, base: int, end: int) -> list[int]:
    """0, and in each further part of `segment` the first record, if there is one near the part's front."""
    starts = [0]
    search, physical_offset_of = _MAGIC.search, _PHYSICAL_OFFSET.unpack_from
    limit = len(segment) - HEAD.size
    empty_parts = 0
    for part in range(_PART_BYTES, min(end, limit), _PART_BYTES):
        stop = min(part + _SEARCH_BYTES, end, limit) + _MAGIC_AT
        found = search(segment, part + _MAGIC_AT, stop)
        while found is not None:
            position = found.start() - _MAGIC_AT
            if physical_offset_of(segment, position + _PHYSICAL_OFFSET_AT)[0] == base + position:
                starts.append(position)
                empty_parts = -1
                break
            found = search(segment, position + _MAGIC_AT + 1, stop)
        empty_parts += 1
        if empty_parts > 1 and not any(segment[part : part + HEAD.size]):
            break  # most likely the zeros behind the log's end; if not, the last cursor walks on through it
    return starts


def _follow(
    sizes: npt.NDArray[np.uint32], magics: npt.NDArray[np.int32], starts: Positions, stops: Positions
) -> Positions:
    """Follow the chain from each start to before its stop; the positions of all, in no order."""
    last = sizes.size - 1
    cursors = starts
    pieces: list[Positions] = []
    while cursors.size:
        block = np.empty((_STEPS, cursors.size), np.int64)
        for row in block:
            row[:] = cursors
            cursors = cursors + sizes[np.minimum(cursors, last)]
        pieces.append(block[block < stops])
        magic = magics[np.minimum(cursors, last)]
        # A cursor that came upon bytes of no record would go on through them for long.
        going = (cursors < stops) & (cursors > block[-1]) & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
        if not going.all():
            cursors, stops = cursors[going], stops[going]
    return np.concatenate(pieces)
