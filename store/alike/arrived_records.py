"""Records that a replica received, as entries of their queues: by columns, if they are alike.

They are taken if `store.dispatch.record_intake` would take each of them too.  So each has a seal that holds, is of a
plain queue, and follows the last entry there.  If one of them is unusual, or has another form, none is taken.

Bodies may have any length.  Tails of one length have one shape, which allows any topic of one length.
"""

import struct
from collections.abc import Callable
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import CRC_MASK, MAGIC_V1, MIN_RECORD_BYTES
from store.alike.columns import Longs, Octets, by_value, common_text, numbers_of, texts_of
from store.alike.record_columns import LENGTH_BYTES, tags_codes
from store.alike.tail_shape import TAGS, AnyTopicShape, KnownShapes
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES, RECORD_IPV4_DTYPE
from store.queue.logic_queue import LogicQueue
from store.record.checksum import SEAL_BYTES, SEAL_NAME, crc32
from store.record.record import FIXED_IPV4_BYTES

# With fewer records for each length of tails, arrays take longer than records one by one.
MIN_ALIKE: Final = 20
_MIN_TAIL_BYTES: Final = 1 + LENGTH_BYTES + SEAL_BYTES
# Digits of a CRC in a seal, highest first: from the last but one octet of a tail backwards.
_DIGITS: Final = slice(-2, len(SEAL_NAME) - SEAL_BYTES - 1, -1)
# Up to this size a copy pays: parts of bytes take half the time of parts of a memoryview.
_COPIED_BYTES: Final = 64 * 1024
_size_at: Final = struct.Struct(">i").unpack_from
_known: Final = KnownShapes(AnyTopicShape.of)

_UNIT: Final = f"V{CONSUME_QUEUE_UNIT_BYTES}"

# Bytes of the taken records, the store timestamp of the last one, and for each queue its new entries.
Taken = tuple[int, int, list[tuple[LogicQueue, bytes]]]
_NONE: Final[Taken] = (0, 0, [])


class _Chain(NamedTuple):
    """Records that follow one another in `content`; `step` is their size if all have one, else 0."""

    content: bytes | memoryview
    begins: Longs
    ends: Longs
    step: int

    def heads(self) -> npt.NDArray[Any]:
        """Return the fixed fields of all records."""
        if self.step:
            return np.ndarray((len(self.begins),), RECORD_IPV4_DTYPE, self.content, 0, (self.step,))
        # A gather of fields takes nine times as long.
        return self._gathered(self.begins, FIXED_IPV4_BYTES).view(RECORD_IPV4_DTYPE)

    def tails(self, ends: Longs, size: int) -> Octets:
        """Return the last `size` bytes of records that end at `ends`: all of them, or some."""
        count = len(ends)
        if self.step and count == len(self.ends):
            return np.ndarray((count, size), np.uint8, self.content, self.step - size, (self.step, 1))
        return self._gathered(ends - size, size).view(np.uint8).reshape(count, size)

    def _gathered(self, begins: Longs, size: int) -> npt.NDArray[np.void]:
        every: npt.NDArray[np.void] = np.ndarray((len(self.content) - size + 1,), f"V{size}", self.content, 0, (1,))
        return every[begins]

    def crcs(self) -> Longs:
        """Return the CRC of each record up to its seal."""
        pieces: list[bytes | memoryview]
        if self.step:
            kind = f"V{self.step - SEAL_BYTES}"
            pieces = np.ndarray((len(self.begins),), kind, self.content, 0, (self.step,)).tolist()
        else:
            bounds = zip(self.begins.tolist(), (self.ends - SEAL_BYTES).tolist(), strict=True)
            pieces = [self.content[begin:end] for begin, end in bounds]
        return np.array(list(map(crc32, pieces))) & CRC_MASK


class _Tails(NamedTuple):
    """What tails say of each record: topic, tags code, and the CRC that it should have.

    `topics` is one name if all records have it.
    """

    topics: bytes | list[bytes]
    codes: Longs
    claims: Longs


def are_enough(segment: memoryview) -> bool:
    """Return whether `segment` has enough records for arrays, judged by the size of the first one."""
    return len(segment) >= MIN_ALIKE * int.from_bytes(segment[:4], "big")


def take_alike(
    segment: memoryview,
    base: int,
    room_bytes: int,
    unusual_flags: int,
    *,
    queue_of: Callable[[bytes, int], LogicQueue | None],
) -> Taken:
    """Take records at the begin of `segment`, or none; see `sprocket.engine.store.intake.take`.

    `room_bytes` are those up to where a blank must have room.
    """
    chain = _chain(segment[: max(0, room_bytes)])
    if chain is None:
        return _NONE
    heads, offsets, sizes = chain.heads(), chain.begins + base, chain.step or chain.ends - chain.begins
    # Half the time of `any`.
    count_true = np.count_nonzero
    if count_true(heads["magic"] != MAGIC_V1) or count_true(heads["sys_flag"] & unusual_flags):
        return _NONE
    body_bytes = heads["body_length"].tolist()
    if count_true(heads["physical_offset"] != offsets) or min(body_bytes) < 0:
        return _NONE
    tails = _tails(chain, body_bytes)
    if tails is None or count_true(chain.crcs() != tails.claims):
        return _NONE
    entries = np.empty(len(offsets), CONSUME_QUEUE_DTYPE)
    entries["physical_offset"], entries["size"], entries["tags_code"] = offsets, sizes, tails.codes
    units = _by_queue(entries, heads, tails.topics, queue_of)
    return (int(chain.ends[-1]), int(heads["store_timestamp"][-1]), units) if units else _NONE


def _chain(segment: memoryview) -> _Chain | None:
    """Return whole records with which `segment` begins; None if there is none."""
    end = len(segment)
    step = _size_at(segment)[0] if end >= MIN_RECORD_BYTES else 0
    if not MIN_RECORD_BYTES <= step <= end:
        return None
    sizes = np.ndarray((end // step,), ">i4", segment, 0, (step,))
    if np.count_nonzero(sizes == step) == len(sizes):
        begins = np.arange(0, len(sizes) * step, step)
        return _Chain(segment, begins, begins + step, step)
    content = bytes(segment) if end <= _COPIED_BYTES else segment
    ends, at = [0], 0
    while at + MIN_RECORD_BYTES <= end:
        size = _size_at(content, at)[0]
        if not MIN_RECORD_BYTES <= size <= end - at:
            break
        at += size
        ends.append(at)
    bounds = np.array(ends)
    return _Chain(content, bounds[:-1], bounds[1:], 0)


def _tails(chain: _Chain, body_bytes: list[int]) -> _Tails | None:
    """Read the tails; None if those of one length have not one shape."""
    count = len(body_bytes)
    if chain.step and body_bytes.count(body_bytes[0]) == count:
        return _tails_of(chain, chain.ends, chain.step - FIXED_IPV4_BYTES - body_bytes[0])
    tail_bytes = chain.ends - chain.begins - FIXED_IPV4_BYTES - body_bytes
    groups = by_value(tail_bytes, MIN_ALIKE)
    if not groups:
        return None
    if len(groups) == 1:
        return _tails_of(chain, chain.ends, groups[0][0])
    topics, codes, claims = [b""] * count, np.empty(count, np.int64), np.empty(count, np.int64)
    for size, rows in groups:
        part = _tails_of(chain, chain.ends[rows], size)
        if part is None:
            return None
        names = part.topics if isinstance(part.topics, list) else repeat(part.topics)
        for row, topic in zip(rows.tolist(), names, strict=False):
            topics[row] = topic
        codes[rows], claims[rows] = part.codes, part.claims
    return _Tails(topics, codes, claims)


def _tails_of(chain: _Chain, ends: Longs, size: int) -> _Tails | None:
    """Read tails of one length; None if they have not one shape."""
    if size < _MIN_TAIL_BYTES:
        return None
    tails = chain.tails(ends, size)
    shape = _known.find(tails, tails[0, :1].tobytes())
    if shape is None:
        return None
    names = tails[:, shape.topic]
    topic = common_text(names)
    codes = tags_codes(tails[:, shape.gaps[TAGS]]) if TAGS in shape.gaps else np.zeros(len(tails), np.int64)
    return _Tails(texts_of(names) if topic is None else topic, codes, numbers_of(tails[:, _DIGITS]))


def _by_queue(
    entries: npt.NDArray[np.void],
    heads: npt.NDArray[Any],
    topics: bytes | list[bytes],
    queue_of: Callable[[bytes, int], LogicQueue | None],
) -> list[tuple[LogicQueue, bytes]]:
    """Return the queues with their entries; none if a queue is unusual, or its offsets do not go on."""
    # A loop: between other work of the process, it takes less time than several more operations of arrays.
    queues: dict[Any, LogicQueue] = {}
    units: dict[Any, list[bytes]] = {}
    queue_ids, offsets = heads["queue_id"].tolist(), heads["queue_offset"].tolist()
    places = queue_ids if isinstance(topics, bytes) else zip(topics, queue_ids, strict=True)
    for place, offset, unit in zip(places, offsets, entries.view(_UNIT).tolist(), strict=True):
        added = units.get(place)
        if added is None:
            queue = queue_of(topics, place) if isinstance(topics, bytes) else queue_of(*place)
            if queue is None or not queue.next_offset:
                return []
            queues[place] = queue
            added = units[place] = []
        if offset != queues[place].next_offset + len(added):
            return []
        added.append(unit)
    return [(queue, b"".join(units[place])) for place, queue in queues.items()]
