"""Usual sends of a read whose headers are alike, served as columns of arrays: the path of pure Python.

It has the interface of `sprocket.engine.broker.sends`, so `UsualSends` serves by either.  What messages have in common
is made once for a read.  What differs is copied from the headers by arrays, and loops over messages run in C.  A read
for which that cannot be done takes the path of `SendProcessor.send`, one request at a time.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np

from broker.send.alike.header_shape import HeaderShape
from broker.send.alike.part import Part
from broker.send.alike.places import QueueOf, SendKinds, place_of
from broker.send.send_kinds import SendKind
from broker.transaction.half_message import TRANSACTION_MASK
from sprocket.common.errors import ProtocolError
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.framing import JSON, Frame, Frames
from sprocket.remoting.headers.base import Header
from sprocket.remoting.routes import RouteTable, UnroutableRequest
from store.alike.columns import Longs, Octets, by_length, numbers_of, rows_of, texts_of
from store.alike.record_columns import interleaved, placed
from store.queue.logic_queue import LogicQueue

# With fewer messages, arrays take longer than requests one at a time: half and timed ones, and plain ones.
MIN_SENDS: Final = 16
_MIN_PLAIN: Final = 48
# Shapes of headers that a reader keeps.  A header of another shape replaces the oldest at every eighth read.
_MAX_SHAPES: Final = 8
_LEARN_EVERY: Final = 8
# A longer header is not worth learning.
_MAX_HEADER_BYTES: Final = 4096

# Returns (topic, limit of queue ids, flags) of a topic whose messages may be usual.
TopicOf = Callable[[str], tuple[str, int, int] | None]


# Shape of some headers of a read, the headers, their indexes, ascending, and what is too much in their opaques.
_Alike = tuple[HeaderShape, Octets, Sequence[int], Longs | int]


class SendReader:
    """Reader of the usual sends of one request code, for one configuration of a broker."""

    def __init__(
        self, table: RouteTable, header: type[Header], usual_flags: int, suffix: bytes, kinds: SendKinds
    ) -> None:
        """`table` decodes requests; bits of sysFlag other than `usual_flags` are unusual.

        `suffix` are the properties that the broker adds to each message.
        """
        self._table = table
        self._wire_names = {field.name: field.encode_name for field in msgspec.structs.fields(header)}
        self._usual_flags = usual_flags
        self._suffix = suffix
        self._kinds = kinds
        self._shapes: list[HeaderShape] = []
        self._unknown = 0

    def read(
        self,
        frames: Frames,
        index: int,
        max_sends: int,
        least: int,
        room_bytes: int,
        max_record_bytes: int,
        born_host: bytes,
        topic_of: TopicOf,
        queue_of: QueueOf,
        proof: object | None = None,
    ) -> "Sends | None":
        """Return the usual sends in `frames` from `index` on; None if they are few, or not alike enough.

        See `sprocket.engine.broker.sends.SendReader.read`.  Pure Python never has a `proof`.
        """
        if index or len(frames) > max_sends:
            frames = frames[index : index + max_sends]
        # A frame that an access gate has decoded is of another type.
        if proof is not None or type(frames[0]) is not tuple:
            return None
        min_sends = MIN_SENDS if _looks_special(frames[0][1]) else _MIN_PLAIN
        if len(frames) < min_sends:
            return None
        serializations, headers, bodies = zip(*frames, strict=True)
        if serializations.count(JSON) < len(serializations):
            headers = headers[: next(index for index, one in enumerate(serializations) if one != JSON)]
        found, end = self._alike(frames, headers)
        bodies = bodies[:end]
        if end < max(min_sends, min(least, len(frames))) or not all(bodies):
            return None
        parts, rows = list[Part](), list[Sequence[int]]()
        for shape, octets, places, excess in found:
            kept = places[: bisect_left(places, end)]
            if kept:
                some = bodies if len(kept) == end else [bodies[row] for row in kept]
                part = self._part(shape, octets[: len(kept)], excess, some, born_host, topic_of, queue_of)
                if part is None:
                    return None
                parts.append(part)
                rows.append(kept)
        sends = Sends(parts, rows, self._kinds.broker_name)
        if sends.total_bytes > room_bytes or max(part.largest_bytes for part in parts) > max_record_bytes:
            return None
        return sends

    def _alike(self, frames: Frames, headers: Sequence[bytes]) -> tuple[list[_Alike], int]:
        """Return `headers` that are alike, by shape, and the index of the first that is like none of them.

        They are the first of `frames`.
        """
        groups = by_length(headers)
        if not groups or len(groups) * MIN_SENDS > len(headers):
            return [], 0
        if len(groups) > 1 and (padded := self._padded(headers, groups)) is not None:
            return [padded], len(headers)
        end, found = len(headers), list[_Alike]()
        for rows in groups:
            octets = rows_of(headers if len(groups) == 1 else [headers[row] for row in rows])
            shape, usual = self._shape_of(frames[rows[0]], octets)
            if usual < len(rows):
                end = min(end, rows[usual])
            if shape is not None:
                found.append((shape, octets, rows, 0))
        return found, end

    def _padded(self, headers: Sequence[bytes], groups: Sequence[Sequence[int]]) -> _Alike | None:
        """Return all headers with one known shape, if only their opaques differ in length; else None.

        Opaques count up, so a read often has those of two lengths.  Two shapes would cost twice as much.
        """
        size_bytes = max(len(headers[rows[0]]) for rows in groups)
        shape = next((shape for shape in self._shapes if shape.size_bytes == size_bytes), None)
        if shape is None:
            return None
        padded = [shape.padded(header) for header in headers]
        texts = [text for text in padded if text is not None]
        if len(texts) < len(headers) or shape.alike(octets := rows_of(texts)) < len(headers):
            return None
        excess = {len(headers[rows[0]]): shape.excess(headers[rows[0]]) for rows in groups}
        return shape, octets, range(len(headers)), np.array([excess[len(header)] for header in headers])

    def _shape_of(self, frame: Frame, headers: Octets) -> tuple[HeaderShape | None, int]:
        """Return a shape that the header of `frame` has, the first of `headers`, and how many rows have it."""
        size_bytes = headers.shape[1]
        for shape in self._shapes:
            if shape.size_bytes == size_bytes and (usual := shape.alike(headers)):
                return shape, usual
        self._unknown += 1
        if size_bytes > _MAX_HEADER_BYTES or (len(self._shapes) == _MAX_SHAPES and self._unknown % _LEARN_EVERY):
            return None, 0
        learnt = self._learnt(frame)
        if learnt is None:
            return None, 0
        self._shapes = [learnt, *self._shapes[: _MAX_SHAPES - 1]]
        return learnt, learnt.alike(headers)

    def _learnt(self, frame: Frame) -> HeaderShape | None:
        try:
            decoded = self._table.decode(frame)
        except (ProtocolError, UnroutableRequest):
            return None
        return HeaderShape.of(frame[1], decoded[1], self._wire_names) if isinstance(decoded, tuple) else None

    def _part(
        self,
        shape: HeaderShape,
        headers: Octets,
        excess: Longs | int,
        bodies: Sequence[bytes],
        born_host: bytes,
        topic_of: TopicOf,
        queue_of: QueueOf,
    ) -> Part | None:
        """Return the sends with these headers; None if the broker might not store them as others of their kind."""
        found = topic_of(shape.topic)
        if found is None:
            return None
        _, queue_limit, flags = found
        sys_flag = shape.sys_flag | flags
        if shape.kind is SendKind.HALF:
            sys_flag &= ~TRANSACTION_MASK
        queue_ids = numbers_of(headers[:, shape.gaps["queue_id"]])
        if sys_flag & ~self._usual_flags or int(queue_ids.max()) >= queue_limit:
            return None
        place = place_of(shape, headers, queue_ids, queue_of, self._kinds)
        return (
            None
            if place is None
            else Part(shape, headers, queue_ids, excess, bodies, place, self._suffix, sys_flag, born_host)
        )


def _looks_special(header: bytes) -> bool:
    """Return whether a header seems to be that of a half or timed message."""
    return b"TRAN_MSG" in header or b"TIMER_" in header


class Sends:
    """Usual sends of one read, in order: what they become in the log and in the queues, and their responses."""

    def __init__(self, parts: Sequence[Part], rows: Sequence[Sequence[int]], broker_name: bytes) -> None:
        """`rows` are the indexes of the sends of each part."""
        self.parts, self._broker_name = parts, broker_name
        # None: one part has all.  Else the indexes of each part, and the index of each send among those of all parts.
        self._rows = None if len(parts) == 1 else [np.array(one) for one in rows]
        self._order = None if self._rows is None else np.concatenate(self._rows).argsort().tolist()
        self.columns = interleaved([part.columns for part in parts], rows)
        self.queues = self.columns.queues
        self.total_bytes = sum(part.total_bytes for part in parts)
        # Known when the messages are stored.
        self._positions = self._offsets = self.columns.sizes

    def __len__(self) -> int:
        return len(self.columns.sizes)

    def _split(self, column: Longs) -> list[Longs]:
        """Return the values of each part."""
        return [column] if self._rows is None else [column[rows] for rows in self._rows]

    def place_at(self, positions: Longs, offsets: Longs) -> None:
        """Keep where the records are in the log and in their queues, for the responses."""
        self._positions, self._offsets = positions, offsets

    def responses(self, template: ResponseTemplate, timed_template: ResponseTemplate) -> bytes:
        """Return the responses to stored sends, in order; `timed_template` has a recall handle."""
        templates, name = (template, timed_template), self._broker_name
        places = zip(self.parts, self._split(self._positions), self._split(self._offsets), strict=True)
        found = [part.responses(templates, positions, offsets, name) for part, positions, offsets in places]
        if self._order is None and not isinstance(found[0], list):
            return found[0].tobytes()
        frames = list(chain.from_iterable(one if isinstance(one, list) else texts_of(one) for one in found))
        return b"".join(frames if self._order is None else itemgetter(*self._order)(frames))


class SendGroup:
    """Usual sends of one or more reads, in order, for one append."""

    def __init__(self) -> None:
        self._members: list[Sends] = []
        self.messages = 0
        self.timed = 0  # messages with a delivery time
        self.size_bytes = 0

    def __len__(self) -> int:
        return self.messages

    def add(self, sends: Sends) -> None:
        """Add the sends of one read after those that are there."""
        self._members.append(sends)
        self.messages += len(sends)
        self.timed += sum(len(part) for part in sends.parts if part.place.timing is not None)
        self.size_bytes += sends.total_bytes

    def queues(self) -> list[LogicQueue]:
        """Return the queues that get records, each once."""
        return list(dict.fromkeys(chain.from_iterable(member.queues for member in self._members)))

    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[LogicQueue, bytes]]]:
        """Return the records for `physical_offset`, and each queue that gets any with its entries.

        Offsets in a queue begin at its `next_offset`.
        """
        columns = [member.columns for member in self._members]
        content, positions, offsets, entries = placed(columns, physical_offset, store_timestamp, store_host)
        self._place(positions, offsets)
        return content, entries

    def _place(self, positions: Longs, offsets: Longs) -> None:
        at = 0
        for member in self._members:
            end = at + len(member)
            member.place_at(positions[at:end], offsets[at:end])
            at = end

    # For statistics

    def by_topic(self) -> list[tuple[str, bool, int, int, int]]:
        """Return (topic, whether with a sharding key, number of records, their bytes, bytes of the largest) of all."""
        found: dict[tuple[str, bool], tuple[int, int, int]] = {}
        for part in self._parts():
            name = part.place.topic, part.is_fifo
            messages, total_bytes, largest_bytes = found.get(name, (0, 0, 0))
            largest_bytes = max(largest_bytes, part.largest_bytes)
            found[name] = messages + len(part), total_bytes + part.total_bytes, largest_bytes
        return [(*name, *figures) for name, figures in found.items()]

    def sizes_of(self, topic: str, is_fifo: bool) -> list[int]:
        """Return the size of each record of a topic, with or without a sharding key."""
        chosen = [part for part in self._parts() if (part.place.topic, part.is_fifo) == (topic, is_fifo)]
        return list(chain.from_iterable(part.columns.sizes.tolist() for part in chosen))

    def delays(self) -> dict[str, list[int]]:
        """Return the delays of the timed messages, s, by topic."""
        found: dict[str, list[int]] = {}
        for part in self._parts():
            if part.place.timing is not None:
                found.setdefault(part.real_topic, []).extend(part.place.timing.delays_s)
        return found

    def _parts(self) -> Iterator[Part]:
        return chain.from_iterable(member.parts for member in self._members)
