"""Records to append, as columns: what differs between them is in arrays, and loops over them run in C."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.record import CRC_MASK
from store.alike.columns import Longs, Octets, common_text, texts_of
from store.layout import CONSUME_QUEUE_DTYPE, CONSUME_QUEUE_UNIT_BYTES
from store.queue.logic_queue import LogicQueue
from store.record.checksum import SEAL_BYTES, crc32, with_seals
from store.record.record import FIXED_IPV4_BYTES

LENGTH_BYTES: Final = 2  # of the field that holds the length of the properties


class RecordColumns(NamedTuple):
    """Sealed records for plain queues, one at each index.

    `heads` are their fixed fields (`RECORD_IPV4_DTYPE`); those that depend on where a record is stored are set then.
    `tails` are what follows the body up to the seal.  `lanes` are indexes in `queues`.
    """

    queues: Sequence[LogicQueue]
    lanes: Longs
    tags_codes: Longs
    heads: npt.NDArray[Any]
    bodies: Sequence[bytes | memoryview]
    tails: Sequence[bytes]
    sizes: Longs


class Placed(NamedTuple):
    """Records as they are written, where each is in the log and in its queue, and the entries of each queue."""

    content: bytes
    positions: Longs
    offsets: Longs
    entries: list[tuple[LogicQueue, bytes]]


def sizes_of(body_bytes: Longs, tail_bytes: int) -> Longs:
    """Return the sizes of records with tails of one length."""
    return body_bytes + (FIXED_IPV4_BYTES + tail_bytes + SEAL_BYTES)


def body_crcs(bodies: Sequence[bytes | memoryview]) -> list[int]:
    """Return the CRCs of bodies for the fixed fields."""
    return [crc & CRC_MASK for crc in map(crc32, bodies)]


def tags_codes(tags: Octets) -> Longs:
    """Return the tags code of each tag, one a row, in ASCII."""
    common = common_text(tags)
    if common is not None:
        return np.full(len(tags), tag_code(common))
    return np.array(list(map(tag_code, texts_of(tags))))


@lru_cache(maxsize=1024)
def tag_code(tag: bytes) -> int:
    """Return the tags code of a tag in ASCII."""
    return java_hash_code(tag.decode())


def common_tail(queue: LogicQueue, properties_bytes: int) -> bytes:
    """Return what the tails of records for `queue` begin with: its topic, and the length of properties and seal."""
    # A length of more than two bytes is that of a record over its limit, which is not stored.
    return queue.topic_bytes + ((properties_bytes + SEAL_BYTES) & 0xFFFF).to_bytes(LENGTH_BYTES, "big")


def interleaved(parts: Sequence[RecordColumns], rows: Sequence[Sequence[int] | Longs]) -> RecordColumns:
    """Return the records of several parts in order; `rows` are the ascending indexes of each part's records."""
    if len(parts) == 1:
        return parts[0]
    order = np.concatenate(rows).argsort()
    picked = itemgetter(*order.tolist())
    queues = _queues_of(parts)
    return RecordColumns(
        queues,
        _joined([_lanes(part.lanes, part.queues, queues) for part in parts])[order],
        _joined([part.tags_codes for part in parts])[order],
        _joined([part.heads for part in parts])[order],
        picked(list(chain.from_iterable(part.bodies for part in parts))),
        picked(list(chain.from_iterable(part.tails for part in parts))),
        _joined([part.sizes for part in parts])[order],
    )


def placed(members: Sequence[RecordColumns], physical_offset: int, store_timestamp: int, store_host: bytes) -> Placed:
    """Return the records of all `members`, one after the other, for `physical_offset`.

    Offsets in a queue begin at its `next_offset`.
    """
    queues = _queues_of(members)
    sizes = _joined([member.sizes for member in members])
    positions = physical_offset - sizes + sizes.cumsum()
    lanes = _joined([_lanes(member.lanes, member.queues, queues) for member in members])
    by_queue = lanes.argsort(kind="stable")
    counts = np.bincount(lanes, minlength=len(queues))
    offsets = _offsets(queues, by_queue, counts)

    heads = _joined([member.heads for member in members])
    heads["physical_offset"], heads["queue_offset"] = positions, offsets
    heads["store_timestamp"], heads["store_host"] = store_timestamp, np.void(store_host)
    entries = np.empty(len(sizes), CONSUME_QUEUE_DTYPE)
    entries["physical_offset"], entries["size"] = positions, sizes
    entries["tags_code"] = _joined([member.tags_codes for member in members])
    units = entries[by_queue].tobytes()
    ends = (counts.cumsum() * CONSUME_QUEUE_UNIT_BYTES).tolist()
    parts = [units[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    bodies = chain.from_iterable(member.bodies for member in members)
    tails = chain.from_iterable(member.tails for member in members)
    records = list(map(b"".join, zip(texts_of(heads), bodies, tails, strict=True)))
    content = with_seals(records, [crc & CRC_MASK for crc in map(crc32, records)])
    return Placed(content, positions, offsets, list(zip(queues, parts, strict=True)))


def _queues_of(members: Sequence[RecordColumns]) -> list[LogicQueue]:
    """Return the queues of all, each once."""
    return list(dict.fromkeys(chain.from_iterable(member.queues for member in members)))


def _joined(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return columns, one after the other, as one."""
    # Without the type, the fields of heads would get the byte order of this machine.
    return columns[0] if len(columns) == 1 else np.concatenate(columns, dtype=columns[0].dtype)


def _lanes(lanes: Longs, queues: Sequence[LogicQueue], all_queues: Sequence[LogicQueue]) -> Longs:
    """Return indexes in `all_queues` of the queues whose indexes in `queues` are `lanes`."""
    if list(queues) == list(all_queues):
        return lanes
    found: Longs = np.array([all_queues.index(queue) for queue in queues])[lanes]
    return found


def _offsets(queues: Sequence[LogicQueue], by_queue: Longs, counts: Longs) -> Longs:
    """Return each message's offset in its queue.

    `by_queue` are the indexes of the messages queue by queue, `counts` how many each queue gets.
    """
    firsts = np.array([queue.next_offset for queue in queues]) - counts.cumsum() + counts
    offsets = np.empty_like(by_queue)
    offsets[by_queue] = np.arange(len(by_queue)) + np.repeat(firsts, counts)
    return offsets
