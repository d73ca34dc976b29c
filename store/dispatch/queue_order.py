"""Order of many records by queue: runs of consecutive queue offsets."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from store.scan.columns import Integers

_QUEUE_ID_BITS: Final = 32
_QUEUE_ID_MASK: Final = (1 << _QUEUE_ID_BITS) - 1
_MAX_NUMBERS: Final = 1 << 16


class RunBounds(NamedTuple):
    """Rows [`begin`, `end`) in the order of queues, with queue offsets from `offset` on."""

    topic_number: int
    queue_id: int
    offset: int
    begin: int
    end: int


def queue_key(topic_number: int, queue_id: int) -> int:
    """Return the key of a queue."""
    return topic_number << _QUEUE_ID_BITS | queue_id & _QUEUE_ID_MASK


def queue_keys(topic_numbers: Integers, queue_ids: npt.NDArray[np.int32]) -> Integers:
    """Return `queue_key` of each record."""
    return topic_numbers << _QUEUE_ID_BITS | queue_ids.astype(np.int64) & _QUEUE_ID_MASK


def order_by_queue(keys: Integers, offsets: Integers) -> tuple[Integers, Iterator[RunBounds]]:
    """Return the order that puts the records of each queue side by side, in the order of the log, and the runs in it.

    `keys` are `queue_keys`, `offsets` queue offsets; there is at least one record.
    """
    groups, key_of = _grouped(keys)
    order = np.argsort(groups, kind="stable")
    groups, offsets = groups[order], offsets[order]
    is_break = (offsets[1:] != offsets[:-1] + 1) | (groups[1:] != groups[:-1])
    begins = np.concatenate(([0], np.flatnonzero(is_break) + 1))
    ends = np.append(begins[1:], offsets.size)
    return order, _bounds(key_of[groups[begins]], offsets[begins], begins, ends)


def _bounds(keys: Integers, offsets: Integers, begins: Integers, ends: Integers) -> Iterator[RunBounds]:
    rows = zip(keys.tolist(), offsets.tolist(), begins.tolist(), ends.tolist(), strict=True)
    for key, offset, begin, end in rows:
        queue_id = key & _QUEUE_ID_MASK
        signed = queue_id if queue_id < 1 << 31 else queue_id - (1 << 32)
        yield RunBounds(key >> _QUEUE_ID_BITS, signed, offset, begin, end)


def _grouped(keys: Integers) -> tuple[npt.NDArray[np.uint16] | Integers, Integers]:
    """Return a number for each of `keys`, equal for equal keys, and the key of each number.

    numpy sorts 16-bit numbers by radix.  For few topics and queue ids the numbers need no comparisons.
    """
    queue_ids, topics = keys & _QUEUE_ID_MASK, keys >> _QUEUE_ID_BITS
    span, topic_count = int(queue_ids.max()) + 1, int(topics.max()) + 1
    if span * topic_count <= _MAX_NUMBERS:
        key_of = np.arange(topic_count).repeat(span) << _QUEUE_ID_BITS | np.tile(np.arange(span), topic_count)
        return (topics * span + queue_ids).astype(np.uint16), key_of
    key_of, groups = np.unique(keys, return_inverse=True)
    return groups.astype(np.uint16) if key_of.size <= _MAX_NUMBERS else groups, key_of
