"""Messages inside a record: topics with a batch ConsumeQueue keep a producer's batch as one record.

The body is a chain of total size, magic, body CRC, flag, body length (i32 each), body, properties length (i16),
properties.  Message k has the record's queue offset plus k; hosts, times and topic are the record's.
Source: RocketMQ 5.3.3, `MessageDecoder.decodeMessage(MessageExt, List)`, `PullAPIWrapper.processPullResult`.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import SysFlag

Positions = npt.NDArray[np.int64]

HEAD_BYTES: Final = 20
FLAG_AT: Final = 12
_BODY_LENGTH_AT: Final = 16
_MIN_BYTES: Final = HEAD_BYTES + 2
# Flags of batches that consumers unwrap.
_FLAGS: Final = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


class InnerMessages(NamedTuple):
    """Rows of some records: for each its record's index, the start of its inner message, its place in the batch.

    The start is -1 if the record is one message.  `broken` are the indexes of records with an inconsistent batch.
    """

    records: Positions
    begins: Positions
    places: Positions
    broken: Positions


def may_hold(all_flags: int) -> bool:
    """Return whether some record may hold a batch; `all_flags` is the union of the records' flags."""
    return all_flags & _FLAGS == _FLAGS


def batches(sys_flags: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Return which records hold a batch to unwrap; a compressed batch is left as it is."""
    held: npt.NDArray[np.bool_] = sys_flags & (_FLAGS | SysFlag.COMPRESSED) == _FLAGS
    return held


def unwrap(data: memoryview, is_batch: npt.NDArray[np.bool_], begins: Positions, ends: Positions) -> InnerMessages:
    """Return the rows of records with bodies [`begins`, `ends`) of `data`; all batches are walked in lock-step."""
    record = np.flatnonzero(is_batch)
    cursor, end = begins[record], ends[record]
    plain = np.flatnonzero(~is_batch)
    parts = [(plain, np.full(plain.size, -1, np.int64), np.zeros(plain.size, np.int64))]
    broken = []
    place = 0
    while record.size:
        size = _integers(data, cursor)
        holds = (size >= _MIN_BYTES) & (size <= end - cursor)
        holds &= _adds_up(data, np.where(holds, cursor, 0), size, holds)
        if not holds.all():
            broken.append(record[~holds])
            record, cursor, end, size = record[holds], cursor[holds], end[holds], size[holds]
        parts.append((record, cursor, np.full(record.size, place, np.int64)))
        cursor = cursor + size
        going = cursor < end
        record, cursor, end = record[going], cursor[going], end[going]
        place += 1
    records, inner, places = (np.concatenate(column) for column in zip(*parts, strict=True))
    bad = np.concatenate(broken) if broken else np.empty(0, np.int64)
    if bad.size:
        kept = ~np.isin(records, bad)
        records, inner, places = records[kept], inner[kept], places[kept]
    order = np.lexsort((places, records))
    return InnerMessages(records[order], inner[order], places[order], np.sort(bad))


def bodies(data: memoryview, begins: Positions) -> tuple[Positions, Positions]:
    """Return start and end of the body of each message that begins at one of `begins`."""
    lengths = _integers(data, begins + _BODY_LENGTH_AT)
    return begins + HEAD_BYTES, begins + HEAD_BYTES + lengths


def _adds_up(
    data: memoryview, cursor: Positions, size: Positions, holds: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    length = np.where(holds, _integers(data, cursor + _BODY_LENGTH_AT), 0)
    fits = holds & (length >= 0) & (length <= size - _MIN_BYTES)
    at = np.where(fits, cursor + HEAD_BYTES + length, 0)
    properties = np.ndarray((len(data) - 1,), ">i2", data, 0, (1,))[at].astype(np.int64)
    exact: npt.NDArray[np.bool_] = fits & (properties == size - _MIN_BYTES - length)
    return exact


def _integers(data: memoryview, at: Positions) -> Positions:
    every = np.ndarray((len(data) - 3,), ">i4", data, 0, (1,))
    return every[np.minimum(at, len(data) - 4)].astype(np.int64)
