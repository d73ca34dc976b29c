"""Usual acknowledgements of a read that are alike: the path of pure Python.

It has the interface of `sprocket.engine.broker.acks`, so `UsualAcks` serves by either.  A client acknowledges the
messages of one pop one by one, with headers that differ only in two numbers: the message's offset, which ends the
handle too, and the opaque.  The first header of a pop is decoded and checked.  The others are recognised by their text
without these numbers, and are not decoded.  `AckProcessor.acknowledge` serves whatever is unusual.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from broker.pop.ack_lanes import AckLane, parts_of
from broker.pop.revive.revive_log import AckForm
from sprocket.common.errors import ProtocolError
from sprocket.remoting.command import FLAG_ONEWAY
from sprocket.remoting.frames import JSON_PREFIXES, ResponseTemplate
from sprocket.remoting.framing import JSON, Frame, Frames
from sprocket.remoting.message.record import CRC_MASK, FIXED_IPV4_RAW
from sprocket.remoting.routes import RouteTable, UnroutableRequest
from store.queue.consume_queue import encode_entries
from store.queue.logic_queue import LogicQueue
from store.record.checksum import SEAL_BYTES, crc32, with_seals

# With fewer acknowledgements in a read, or fewer for each header that is decoded, nothing is gained.
MIN_ACKS: Final = 8
# After a read of many pops, this many reads are not looked at: a look that finds that costs a fifth of the read.
PASSED_READS: Final = 15
_MAX_OPAQUE: Final = 10**9 - 1
# A longer header is not worth learning.  Records of shorter ones are within the limits of names and properties.
_MAX_HEADER_BYTES: Final = 4096
_LENGTH_BYTES: Final = 2  # of the field that holds the length of the properties
_ZERO: Final = ord("0")
_ENDS_NUMBER: Final = (b",", b"}")

# A lane, the lowest and the highest offset that may be acknowledged, and the form of the records.
FoundLane = tuple[AckLane, int, int, AckForm]
# Returns the lane of (topic, group, queue id, handle up to its offset); None if it is unusual.
LaneOf = Callable[[str, str, int, str], FoundLane | None]

# What is around the numbers of a header.
_Texts = tuple[bytes, bytes, bytes, bytes]
# Returns the offset in the handle, the offset and the opaque of a header, as texts.
_NumbersOf = Callable[[bytes], tuple[bytes, bytes, bytes]]
_Places = tuple[slice, slice, slice]


class AckReader:
    """Reader of usual acknowledgements, which `table` decodes."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table
        self._to_pass = 0  # reads

    def read(
        self,
        frames: Frames,
        index: int,
        max_acks: int,
        room_bytes: int,
        max_record_bytes: int,
        born_timestamp: int,
        queue: LogicQueue,
        tags_code: int,
        lane_of: LaneOf,
    ) -> "Acks | None":
        """Return the usual acknowledgements in `frames` from `index` on; None if they are few.

        They are also too few if they belong to many pops.  See `sprocket.engine.broker.acks.AckReader.read`.
        """
        if self._to_pass:
            self._to_pass -= 1
            return None
        if index or len(frames) > max_acks:
            frames = frames[index : index + max_acks]
        # A frame that an access gate has decoded is of another type.
        if type(frames[0]) is not tuple:
            return None
        forms, offsets, opaques = list[_Form](), list[bytes](), list[bytes]()
        shapes, left = _Shapes(self._table, queue, lane_of), len(frames) // MIN_ACKS
        shape_of = shapes.by_length.get
        for frame in frames:
            serialization, header, _ = frame
            shape, form = shape_of(len(header)), None
            if shape is not None:
                texts_of, numbers_of, known, _ = shape
                form = known.get(texts_of(header))
            if form is None:
                if not left:
                    self._to_pass = PASSED_READS
                    return None
                left -= 1
                learnt = shapes.learn(frame)
                if learnt is None:
                    break
                form, numbers_of = learnt
            in_handle, offset, opaque = numbers_of(header)
            if in_handle != offset or not (offset + opaque).isdigit() or serialization != JSON:
                break
            room_bytes -= form.record_bytes
            if not form.low <= int(offset) <= form.high or opaque[0] == _ZERO or room_bytes < 0:
                break
            forms.append(form)
            offsets.append(offset)
            opaques.append(opaque)
        if len(forms) < MIN_ACKS or max(form.record_bytes for form in set(forms)) > max_record_bytes:
            return None
        return Acks(forms, offsets, opaques, born_timestamp, queue, tags_code)


class _Form:
    """What acknowledgements of one lane with offsets of one length have in common."""

    __slots__ = (
        "after_body", "after_properties", "before_body", "between", "body_bytes", "high", "lane", "low", "record_bytes",
    )  # fmt: skip

    def __init__(self, found: FoundLane, digits: int, queue: LogicQueue) -> None:
        self.lane, low, self.high, form = found
        # A number of several digits does not begin with 0.
        self.low = low if digits == 1 else max(low, 10 ** (digits - 1))
        self.before_body, self.after_body, before_properties, self.after_properties = form
        self.body_bytes = len(self.before_body) + digits + len(self.after_body)
        properties_bytes = len(before_properties) + digits + len(self.after_properties) + SEAL_BYTES
        # From the end of the body to the offset in the properties.
        length = properties_bytes.to_bytes(_LENGTH_BYTES, "big")
        self.between = b"".join((queue.topic_bytes, length, before_properties))
        self.record_bytes = queue.record_base_bytes + self.body_bytes + properties_bytes


class _Shape(NamedTuple):
    """Headers of one length whose numbers are at the same places."""

    texts_of: Callable[[bytes], _Texts]
    numbers_of: _NumbersOf
    forms: dict[_Texts, _Form]
    places: _Places  # of the numbers

    @classmethod
    def of(cls, places: _Places) -> "_Shape":
        """Return the shape of headers with numbers at these places."""
        first, second, third = sorted(places, key=attrgetter("start"))
        texts = slice(0, first.start), slice(first.stop, second.start), slice(second.stop, third.start)
        return cls(itemgetter(*texts, slice(third.stop, None)), itemgetter(*places), {}, places)


class _Shapes:
    """Shapes of the headers of one read, and the lanes in them."""

    def __init__(self, table: RouteTable, queue: LogicQueue, lane_of: LaneOf) -> None:
        self._table = table
        self._queue = queue
        self._lane_of = lane_of
        self.by_length: dict[int, _Shape] = {}
        # Headers of one lane may have several lengths.
        self._lanes: dict[tuple[str, str, int, str], FoundLane | None] = {}

    def learn(self, frame: Frame) -> tuple[_Form, _NumbersOf] | None:
        """Return the form of an acknowledgement, and what returns its numbers; None if it is unusual."""
        serialization, header, _ = frame
        if serialization != JSON or len(header) > _MAX_HEADER_BYTES:
            return None
        try:
            decoded = self._table.decode(frame)
        except (ProtocolError, UnroutableRequest):
            return None
        if not isinstance(decoded, tuple) or decoded[1].flag & FLAG_ONEWAY:
            return None
        request, fields = decoded[1], decoded[1].header
        common, is_usual = parts_of(fields.extra_info)
        if not is_usual or not 0 < request.opaque <= _MAX_OPAQUE:
            return None
        offset, opaque = b"%d" % fields.offset, b"%d" % request.opaque
        places = _places_of(header, common.encode(), offset, opaque)
        lane = fields.topic, fields.consumer_group, fields.queue_id, common
        if places is None:
            return None
        if lane not in self._lanes:
            self._lanes[lane] = self._lane_of(*lane)
        found = self._lanes[lane]
        if found is None:
            return None
        shape = self.by_length.get(len(header))
        if shape is None or shape.places != places:
            # Of two shapes of one length, the later one is kept.
            shape = self.by_length[len(header)] = _Shape.of(places)
        form = shape.forms[shape.texts_of(header)] = _Form(found, len(offset), self._queue)
        return form, shape.numbers_of


def _places_of(header: bytes, common: bytes, offset: bytes, opaque: bytes) -> _Places | None:
    """Return where the offset in the handle, the offset and the opaque are; None if that is not certain."""
    # A name is not there in another spelling, and a text like it would be found as a second one.
    if b"\\" in header or not header.isascii():
        return None
    handle_end = _end_of(header, b'"extraInfo"', b':"%b%b' % (common, offset), (b'"',))
    offset_end = _end_of(header, b'"offset"', b':"%b' % offset, (b'"',))
    opaque_end = _end_of(header, b'"opaque"', b":%b" % opaque, _ENDS_NUMBER)
    if handle_end < 0 or offset_end < 0 or opaque_end < 0:
        return None
    return (
        slice(handle_end - len(offset), handle_end), slice(offset_end - len(offset), offset_end),
        slice(opaque_end - len(opaque), opaque_end),
    )  # fmt: skip


def _end_of(header: bytes, name: bytes, value: bytes, following: Sequence[bytes]) -> int:
    """Return where the value of a name ends; -1 if the name is not there once, with this value and what follows it."""
    end = header.find(name + value) + len(name) + len(value)
    if end < len(name) + len(value) or header.count(name) != 1 or header[end : end + 1] not in following:
        return -1
    return end


class Acks:
    """Usual acknowledgements of one read, in order: what they become in the log and in the queue, and the responses."""

    def __init__(
        self,
        forms: list[_Form],
        offsets: list[bytes],
        opaques: list[bytes],
        born_timestamp: int,
        queue: LogicQueue,
        tags_code: int,
    ) -> None:
        """`offsets` and `opaques` are decimal numbers."""
        self._forms, self._offsets, self._opaques = forms, offsets, opaques
        self._born_timestamp, self._queue, self._tags_code = born_timestamp, queue, tags_code

    def __len__(self) -> int:
        return len(self._forms)

    def lanes_served(self) -> list[tuple[str, str, int, int, int]]:
        """Return topic, group, queue id, time of the pop and number of acknowledgements of each lane."""
        counts: dict[AckLane, int] = {}
        for form, count in Counter(self._forms).items():
            counts[form.lane] = counts.get(form.lane, 0) + count
        return [(lane.ack.t, lane.ack.c, lane.ack.q, lane.ack.pt, count) for lane, count in counts.items()]

    def encode(
        self, physical_offset: int, store_timestamp: int, store_host: bytes
    ) -> tuple[bytes, list[tuple[LogicQueue, bytes]]]:
        """Return the records for `physical_offset`, and the queue with its entries.

        Offsets in the queue begin at its `next_offset`.
        """
        queue, born_timestamp, tags_code = self._queue, self._born_timestamp, self._tags_code
        magic, queue_id, queue_offset = queue.magic, queue.queue_id, queue.next_offset
        pack, checksum, join, position = FIXED_IPV4_RAW.pack, crc32, b"".join, physical_offset
        records, entries = list[bytes](), list[int]()
        for form, offset in zip(self._forms, self._offsets, strict=True):
            body, size = form.before_body + offset + form.after_body, form.record_bytes
            head = pack(
                size, magic, checksum(body) & CRC_MASK, queue_id, 0, queue_offset, position, 0, born_timestamp,
                store_host, store_timestamp, store_host, 0, 0, form.body_bytes,
            )  # fmt: skip
            records.append(join((head, body, form.between, offset, form.after_properties)))
            entries += (position, size, tags_code)
            position += size
            queue_offset += 1
        crcs = [crc & CRC_MASK for crc in map(checksum, records)]
        return with_seals(records, crcs), [(queue, encode_entries(entries))]

    def responses(self, template: ResponseTemplate) -> bytes:
        """Return the responses, in order; `template` is that of a response without fields."""
        before, _, after = template.json_format.partition(b"%d")
        around = len(before) + len(after)
        begins = {digits: JSON_PREFIXES[around + digits] + before for digits in set(map(len, self._opaques))}
        return b"".join([begins[len(opaque)] + opaque + after for opaque in self._opaques])
