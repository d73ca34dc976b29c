"""Usual ends of a run whose headers are alike, and whose half messages are: the path of pure Python.

It has the interface of `sprocket.engine.broker.ends`, so `UsualEnds` serves by either.  Headers of one length are
compared with a known one by one comparison of arrays; both offsets, the ids and the opaque may differ.  The half
messages become columns (`store.alike.stored_records`), of which `store.alike.moves` makes the real ones.  A run for
which that cannot be done takes the path of `TransactionProcessor.end`, one request at a time.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from broker.send.alike.header_shape import is_number, values_of
from broker.transaction.half_message import COMMIT, QUEUE_ID, TRANSACTION_MASK
from sprocket.common.errors import ProtocolError
from sprocket.remoting.command import FLAG_ONEWAY
from sprocket.remoting.frames import JSON_PREFIXES, ResponseTemplate
from sprocket.remoting.framing import JSON, PREFIX_BYTES, Frame, Frames
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.routes import RouteTable, UnroutableRequest
from store.alike.columns import Longs, Octets, by_length, numbers_of, rows_of
from store.alike.moves import Moves
from store.alike.octet_ranges import OctetRanges
from store.alike.stored_records import MIN_ALIKE, StoredRecords, read_alike
from store.queue.consume_queue import ConsumeQueue

_ROLLBACK: Final = TRANSACTION_MASK
# A number with more digits may be out of range.
_MAX_DIGITS: Final = {"tran_state_table_offset": 18, "commit_log_offset": 18, "opaque": 9}
_IDS: Final = ("msg_id", "transaction_id")
_WIRE_NAMES: Final = {
    field.name: field.encode_name.encode() for field in msgspec.structs.fields(EndTransactionRequestHeader)
}
# First and last octet of an id before a look at what it is made of.
_ANY: Final = (0, 0xFF)
# Shapes of headers that a reader keeps, one for each length; a longer header is not worth learning.
_MAX_SHAPES: Final = 64
_MAX_HEADER_BYTES: Final = 4096
# Half messages that are further apart in their queue are not worth one look at all entries between them.
_MAX_SPREAD: Final = 4096


class EndShape:
    """Headers that differ from a known one only in offsets, ids and opaque, which `gaps` has by name."""

    __slots__ = ("_ids", "_ranges", "gaps", "group", "is_commit", "is_oneway")

    def __init__(self, header: bytes, gaps: dict[str, slice], group: str, *, is_commit: bool, is_oneway: bool) -> None:
        self.gaps, self.group, self.is_commit, self.is_oneway = gaps, group.encode(), is_commit, is_oneway
        self._ids = [gaps[name] for name in _IDS if name in gaps]
        self._ranges = OctetRanges(header)
        for name in _MAX_DIGITS:
            self._ranges.vary_number(gaps[name])
        for gap in self._ids:
            self._ranges.vary(gap, _ANY)

    @classmethod
    def of(cls, frame: Frame, table: RouteTable) -> "EndShape | None":
        """Return the shape of a header, which `table` decodes; None if its end needs the Python path."""
        header = frame[1]
        spans = values_of(header) if len(header) <= _MAX_HEADER_BYTES else None
        if spans is None:
            return None
        try:
            decoded = table.decode(frame)
        except (ProtocolError, UnroutableRequest):
            return None
        fields, others = spans
        found = {name: fields.get(_WIRE_NAMES[name]) for name in (*_MAX_DIGITS, *_IDS) if name != "opaque"}
        found["opaque"] = others.get(b"opaque")
        gaps = {name: span for name, span in found.items() if span is not None and span.start < span.stop}
        if not isinstance(decoded, tuple) or not gaps.keys() >= _MAX_DIGITS.keys():
            return None
        request, end = decoded[1], decoded[1].header
        if not all(is_number(header[gaps[name]], size) for name, size in _MAX_DIGITS.items()):
            return None
        if end.commit_or_rollback not in (COMMIT, _ROLLBACK):
            return None
        is_commit, is_oneway = end.commit_or_rollback == COMMIT, bool(request.flag & FLAG_ONEWAY)
        return cls(header, gaps, end.producer_group, is_commit=is_commit, is_oneway=is_oneway)

    def has(self, headers: Octets) -> bool:
        """Return whether all of `headers`, one a row, have this shape."""
        return self._ranges.hold(headers) and all(headers[:, gap].tobytes().isalnum() for gap in self._ids)

    def numbers(self, headers: Octets) -> tuple[Longs, Longs, Longs]:
        """Return offsets in the half queue, offsets in the log, and opaques."""
        queue_offsets, physical_offsets, opaques = [numbers_of(headers[:, self.gaps[name]]) for name in _MAX_DIGITS]
        return queue_offsets, physical_offsets, opaques


class HalfRecords:
    """Reader of half messages by both of their offsets."""

    def __init__(
        self, queue: ConsumeQueue, segment_at: Callable[[int], tuple[memoryview, int, int]], cold_end: int, log_end: int
    ) -> None:
        """See `sprocket.engine.broker.ends.HalfRecords`."""
        self._queue, self._segment_at, self._cold_end, self._log_end = queue, segment_at, cold_end, log_end

    def read(
        self, queue_offsets: Longs, physical_offsets: Longs, topic_field: bytes, usual_flags: int
    ) -> list[StoredRecords] | None:
        """Return the records that are at both offsets, by shape; None if one is not there, or they are not alike."""
        first, last = int(queue_offsets.min()), int(queue_offsets.max())
        count, queue = last - first + 1, self._queue
        if not queue.min_offset <= first <= last < queue.max_offset or count > _MAX_SPREAD:
            return None
        entries = queue.entries(first, count)
        if len(entries) < count:
            return None  # they lie in two files
        entries = entries[queue_offsets - first]
        if (entries["physical_offset"] != physical_offsets).any() or int(physical_offsets.min()) < self._cold_end:
            return None
        segment, base, end = self._segment_at(int(physical_offsets[0]))
        readable = segment[: max(0, min(end, self._log_end) - base)]
        sizes = entries["size"].astype(np.int64)
        return read_alike(readable, physical_offsets - base, sizes, topic_field, usual_flags)


class _Headers(NamedTuple):
    """What the headers of a run say, in order."""

    group: bytes
    queue_offsets: Longs
    physical_offsets: Longs
    opaques: Longs
    is_commit: npt.NDArray[np.bool_]
    is_oneway: npt.NDArray[np.bool_]


class EndReader:
    """Reader of usual ends, which `table` decodes."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table
        self._shapes: dict[int, EndShape] = {}  # by length

    def read(
        self,
        frames: Frames,
        index: int,
        max_ends: int,
        moves: Moves,
        records: HalfRecords,
        topic_field: bytes,
        half_offset: int,
        done: set[int],
    ) -> "Ends | None":
        """Return the run of ends from `index` on; None if they are few, not alike, or one of them is unusual.

        See `sprocket.engine.broker.ends.EndReader.read`.
        """
        serialization, header, _ = frames[index]
        # A frame that an access gate has decoded is of another type.
        if serialization != JSON or type(frames[index]) is not tuple or len(frames) - index < MIN_ALIKE:
            return None
        begin, run = header[:PREFIX_BYTES], frames[index : index + max_ends]
        # Requests of one handler follow each other.  If these do not, the headers are not alike.
        run = run[: bisect_left(run, True, key=lambda frame: not frame[1].startswith(begin))]
        found = self._headers(run) if len(run) >= MIN_ALIKE else None
        if found is None:
            return None
        offsets = found.queue_offsets.tolist()
        if min(offsets) < half_offset or not done.isdisjoint(offsets) or len(set(offsets)) < len(offsets):
            return None
        flags = moves.usual_flags | TRANSACTION_MASK
        parts = records.read(found.queue_offsets, found.physical_offsets, topic_field, flags)
        if parts is None or not all(_fits(found, part) for part in parts):
            return None
        return Ends(moves, found, parts, offsets) if moves.add_halves(parts, found.is_commit) else None

    def _headers(self, run: Sequence[Frame]) -> _Headers | None:
        serializations, headers, _ = zip(*run, strict=True)
        if serializations.count(JSON) < len(run):
            return None
        groups = by_length(headers)
        if len(groups) * MIN_ALIKE > len(headers):
            return None
        numbers, outcomes = np.empty((len(_MAX_DIGITS), len(headers)), np.int64), np.empty((2, len(headers)), np.bool_)
        producer_groups = set()
        for rows in groups:
            octets = rows_of(headers if len(groups) == 1 else [headers[row] for row in rows])
            shape = self._shape_of(run[rows[0]], octets)
            if shape is None:
                return None
            which = slice(None) if len(groups) == 1 else rows
            numbers[:, which] = shape.numbers(octets)
            outcomes[0, which], outcomes[1, which] = shape.is_commit, shape.is_oneway
            producer_groups.add(shape.group)
        return _Headers(producer_groups.pop(), *numbers, *outcomes) if len(producer_groups) == 1 else None

    def _shape_of(self, first: Frame, headers: Octets) -> EndShape | None:
        """Return the shape of `headers`, the first of which is that of `first`; None if they are not alike."""
        size_bytes = headers.shape[1]
        shape = self._shapes.get(size_bytes)
        if shape is None or not shape.has(headers):
            shape = EndShape.of(first, self._table)
            if shape is None or not shape.has(headers):
                return None
            if len(self._shapes) == _MAX_SHAPES:
                self._shapes.clear()
            self._shapes[size_bytes] = shape
        return shape


def _fits(headers: _Headers, part: StoredRecords) -> bool:
    """Return whether the records are the half messages that the headers name."""
    heads = part.heads
    return (
        part.shape.group == headers.group
        and bool((heads["queue_id"] == QUEUE_ID).all())
        and bool((heads["queue_offset"] == headers.queue_offsets[part.rows]).all())
        and bool((heads["physical_offset"] == headers.physical_offsets[part.rows]).all())
    )


class Ends:
    """Usual ends of one read, in order: the real messages, what they end, and the responses."""

    def __init__(self, moves: Moves, headers: _Headers, parts: Sequence[StoredRecords], offsets: list[int]) -> None:
        self.moves = moves
        # Queue offsets of the half messages that are done.
        self.offsets = offsets
        self._headers, self._parts = headers, parts

    def __len__(self) -> int:
        return len(self.offsets)

    def by_topic(self) -> dict[str, tuple[list[int], int]]:
        """Return for each real topic the born timestamps of what is committed, and how many ends roll back."""
        found: dict[str, tuple[list[int], int]] = {}
        for part in self._parts:
            is_commit, topic = self._headers.is_commit[part.rows], part.shape.real_topic
            born, rolled_back = found.get(topic, ([], 0))
            born += part.heads["born_timestamp"][is_commit].tolist()
            found[topic] = born, rolled_back + int((~is_commit).sum())
        return found

    def waiting(self) -> int:
        """Return how many ends want a response."""
        return int((~self._headers.is_oneway).sum())

    def responses(self, template: ResponseTemplate) -> bytes:
        """Return the responses, in order; `template` is that of a response without fields."""
        opaques = self._headers.opaques[~self._headers.is_oneway].tolist()
        headers = [template.json_format % opaque for opaque in opaques]
        return b"".join([JSON_PREFIXES[len(header)] + header for header in headers])
