"""Records that go on to their real topic, made from alike stored ones by columns: the moves of pure Python.

It has the interface of `sprocket.engine.broker.moves`, so `store.moves` gives one or the other.  Nothing is refused or
dropped here.  Records that are few, or not alike, are left to `HalfMessage.real` and `TimedMessage.real`.
"""

from collections.abc import Callable, Sequence
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sprocket.remoting.message.record import FIXED_IPV4_RAW
from store.alike.columns import Longs, numbers_of, repeated, texts_of
from store.alike.record_columns import (
    RecordColumns,
    body_crcs,
    common_tail,
    interleaved,
    placed,
    sizes_of,
    tags_codes,
)
from store.alike.stored_records import StoredRecords, read_alike
from store.layout import RECORD_IPV4_DTYPE, TIMER_UNIT_DTYPE
from store.queue.logic_queue import LogicQueue

_UNIT_BYTES: Final = TIMER_UNIT_DTYPE.itemsize
_PLAIN_UNIT: Final = 1  # magic number of a unit whose message is delivered when its slot is over
_TRANSACTION_MASK: Final = 0xC
_TRANSACTION_COMMIT: Final = 0x8

# Number of units, bytes of their records, and the number of records for each real topic.
Added = tuple[int, int, list[tuple[str, int]]]
_NONE: Final[Added] = (0, 0, [])


class Moves:
    """New records for one append, in order.  See `sprocket.engine.broker.moves.Moves`."""

    def __init__(
        self,
        usual_flags: int,
        room_bytes: int,
        max_record_bytes: int,
        queue_of: Callable[[str, int], LogicQueue | None],
    ) -> None:
        self.usual_flags = usual_flags
        self._room_bytes, self._max_record_bytes, self._queue_of = room_bytes, max_record_bytes, queue_of
        self._members: list[RecordColumns] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_timed(
        self, record: memoryview, topic_field: bytes, slot_ms: int, width_ms: int, enqueue_ms: int, now_ms: int
    ) -> str | None:
        """Return None: one record is not worth arrays."""
        return None

    def add_units(
        self,
        file: memoryview,
        file_base: int,
        file_end: int,
        positions: Sequence[int],
        taken: int,
        max_moves: int,
        max_bytes: int,
        segment: memoryview,
        base: int,
        end: int,
        topic_field: bytes,
        slot_ms: int,
        width_ms: int,
        now_ms: int,
    ) -> Added:
        """Take records of units of a slot as `sprocket.engine.broker.moves.Moves.add_units`, alike ones or none."""
        chosen = positions[max(0, len(positions) - taken - max_moves + self._count) : len(positions) - taken]
        units = _plain_units(file, file_base, file_end, np.array(chosen, np.int64)[::-1])
        offsets, sizes = units["physical_offset"].astype(np.int64), units["record_size"].astype(np.int64)
        # Up to the first record elsewhere, and to the first that reaches the maximum.
        inside = (offsets >= base) & (sizes > 0) & (offsets <= end - sizes)
        count = min(_run(inside), int(sizes.cumsum().searchsorted(max_bytes)) + 1)
        begins, sizes, enqueue_ms = offsets[:count] - base, sizes[:count], units["write_time"][:count]
        parts = read_alike(segment[: max(0, end - base)], begins, sizes, topic_field, self.usual_flags)
        if parts is None or int(enqueue_ms.min()) < 0:
            return _NONE
        columns, added = [], _way_texts(enqueue_ms.tolist(), now_ms)
        for part in parts:
            if b"TIMER_OUT_MS" not in part.shape.gaps:
                return _NONE
            out_ms = numbers_of(part.values(b"TIMER_OUT_MS"))
            texts = added if len(parts) == 1 else [added[row] for row in part.rows.tolist()]
            if (out_ms - out_ms % width_ms != slot_ms).any() or len(set(map(len, texts))) > 1:
                return _NONE
            moved = self._moved(part, part.sys_flag, 0, texts)
            if moved is None:
                return _NONE
            columns.append(moved)
        if not self._take(interleaved(columns, [part.rows for part in parts])):
            return _NONE
        return count, int(sizes.sum()), [(part.shape.real_topic, len(part.rows)) for part in parts]

    def add_halves(self, parts: Sequence[StoredRecords], is_committed: npt.NDArray[np.bool_]) -> bool:
        """Take half messages that their producers end, by shape; return whether all are usual.

        Those that are not committed become no records.
        """
        columns, rows = [], []
        for part in parts:
            chosen = part.chosen(is_committed[part.rows])
            if chosen is not part and not self._lanes(part)[1]:
                return False
            if chosen is not None:
                sys_flag = part.sys_flag & ~_TRANSACTION_MASK | _TRANSACTION_COMMIT
                moved = self._moved(chosen, sys_flag, chosen.heads["physical_offset"], [])
                if moved is None:
                    return False
                columns.append(moved)
                rows.append(chosen.rows)
        return not columns or self._take(interleaved(columns, rows))

    def add_made(
        self, queue: LogicQueue, body: bytes, properties: bytes, tags_code: int, born_timestamp: int, born_host: bytes
    ) -> bool:
        """Add a message that is made of its parts; return whether there is room for it."""
        tail = common_tail(queue, len(properties)) + properties
        sizes = sizes_of(np.array([len(body)]), len(tail))
        head = FIXED_IPV4_RAW.pack(
            int(sizes[0]), queue.magic, *body_crcs([body]), queue.queue_id, 0, 0, 0, 0, born_timestamp, born_host, 0,
            b"", 0, 0, len(body),
        )  # fmt: skip
        heads = np.frombuffer(bytearray(head), RECORD_IPV4_DTYPE)
        lanes, codes = np.zeros(1, np.int64), np.array([tags_code])
        return self._take(RecordColumns([queue], lanes, codes, heads, [body], [tail], sizes))

    def _moved(
        self,
        records: StoredRecords,
        sys_flag: int,
        prepared_offsets: int | npt.NDArray[Any],
        added: list[bytes],
    ) -> RecordColumns | None:
        """Return the new records, with the properties `added`; None if one of them has no queue yet."""
        lanes, queues = self._lanes(records)
        if not queues:
            return None
        properties = records.tails[:, records.shape.properties]
        properties_bytes = properties.shape[1] + (len(added[0]) if added else 0)
        before = common_tail(queues[0], properties_bytes)
        tails = repeated(before + bytes(properties.shape[1]), len(properties))
        tails[:, len(before) :] = properties
        texts = texts_of(tails)
        if added:
            texts = list(map(add, texts, added))
        heads = records.heads.copy()
        sizes = sizes_of(heads["body_length"].astype(np.int64), len(texts[0]))
        heads["total_size"], heads["magic"], heads["body_crc"] = sizes, queues[0].magic, body_crcs(records.bodies)
        heads["queue_id"] = np.array([queue.queue_id for queue in queues])[lanes]
        heads["sys_flag"], heads["prepared_transaction_offset"] = sys_flag, prepared_offsets
        return RecordColumns(queues, lanes, _tags_codes(records), heads, records.bodies, texts, sizes)

    def _lanes(self, records: StoredRecords) -> tuple[Longs, list[LogicQueue]]:
        """Return the index of each record's queue, and the queues; no queues if one of them may get no record."""
        # For a few queues half of the time of `numpy.unique`.
        queue_ids = numbers_of(records.values(b"REAL_QID")).tolist()
        lane_of = {queue_id: lane for lane, queue_id in enumerate(dict.fromkeys(queue_ids))}
        found = [self._queue_of(records.shape.real_topic, queue_id) for queue_id in lane_of]
        queues = [queue for queue in found if queue is not None]
        lanes = np.array(list(map(lane_of.__getitem__, queue_ids)))
        return lanes, queues if len(queues) == len(found) else []

    def _take(self, records: RecordColumns) -> bool:
        """Count records if there is room for them."""
        total_bytes = int(records.sizes.sum())
        if int(records.sizes.max()) > self._max_record_bytes or total_bytes > self._room_bytes:
            return False
        self._members.append(records)
        self._room_bytes -= total_bytes
        self._count += len(records.sizes)
        return True

    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[LogicQueue, bytes]]]:
        """Return the records for `physical_offset`, and each queue that gets any with its entries.

        Offsets in a queue begin at its `next_offset`.
        """
        found = placed(self._members, physical_offset, store_timestamp, store_host)
        return found.content, found.entries


def _plain_units(file: memoryview, base: int, end: int, positions: Longs) -> npt.NDArray[np.void]:
    """Return the units at `positions`, up to the first that is not plain or not in `file`, which begins at `base`."""
    all_units = np.frombuffer(file, TIMER_UNIT_DTYPE, min(len(file), max(0, end - base)) // _UNIT_BYTES)
    indexes, rest = np.divmod(positions - base, _UNIT_BYTES)
    inside = (rest == 0) & (indexes >= 0) & (indexes < len(all_units))
    units = all_units[indexes[: _run(inside)]]
    return units[: _run((units["size"] == _UNIT_BYTES) & (units["magic"] == _PLAIN_UNIT))]


def _run(is_usual: npt.NDArray[np.bool_]) -> int:
    """Return how many are true before the first that is not."""
    return len(is_usual) if is_usual.all() else int(is_usual.argmin())


def _way_texts(enqueue_ms: list[int], now_ms: int) -> list[bytes]:
    """Return the properties that say when messages entered and left the wheel."""
    texts = {one: b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (one, now_ms) for one in set(enqueue_ms)}
    return [texts[one] for one in enqueue_ms]


def _tags_codes(records: StoredRecords) -> Longs:
    if b"TAGS" not in records.shape.gaps:
        return np.zeros(len(records.rows), np.int64)
    return tags_codes(records.values(b"TAGS"))
