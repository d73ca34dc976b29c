"""Sends of one read whose headers have one shape, as columns."""

from collections.abc import Sequence
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from broker.send.alike.header_shape import HeaderShape
from broker.send.alike.places import Place
from broker.send.alike.response_rows import response_rows
from broker.timer.recall_handle import handle_text
from sprocket.remoting.frames import JSON_PREFIXES, ResponseTemplate
from sprocket.remoting.message.properties import TAGS, UNIQ_KEY, encoded_name, find_last
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from store.alike.columns import Longs, Octets, digits_of, hex_digits_of, numbers_of, repeated, rows_of, texts_of
from store.alike.record_columns import RecordColumns, body_crcs, common_tail, sizes_of, tag_code, tags_codes
from store.layout import RECORD_IPV4_DTYPE

_TAGS_NAME: Final = encoded_name(TAGS)


class Part:
    """Sends with headers of one shape, in order: what they become in the log, and their responses."""

    def __init__(
        self,
        shape: HeaderShape,
        headers: Octets,
        queue_ids: Longs,
        excess: Longs | int,
        bodies: Sequence[bytes],
        place: Place,
        suffix: bytes,
        sys_flag: int,
        born_host: bytes,
    ) -> None:
        """`headers` are one a row, `queue_ids` those in them; `suffix` are properties that all messages get.

        The opaques are those in `headers`, less `excess`: 0, or a number for each message.
        """
        self.place = place
        self.real_topic = shape.topic
        self.is_fifo = shape.is_fifo
        self._shape, self._headers, self._excess = shape, headers, excess
        tails = _tails(shape, headers, place, suffix)
        body_bytes = np.array(list(map(len, bodies)))
        sizes = sizes_of(body_bytes, len(tails[0]))
        self.total_bytes, self.largest_bytes = int(sizes.sum()), int(sizes.max())
        heads = _heads(shape, headers, place, sys_flag, born_host)
        if not place.added:
            heads["queue_id"] = queue_ids
        heads["total_size"], heads["body_length"], heads["body_crc"] = sizes, body_bytes, body_crcs(bodies)
        self.columns = RecordColumns(
            place.queues, place.lanes, _tags_codes(shape, headers), heads, bodies, tails, sizes
        )

    def __len__(self) -> int:
        return len(self._headers)

    def responses(
        self, templates: tuple[ResponseTemplate, ResponseTemplate], positions: Longs, offsets: Longs, broker_name: bytes
    ) -> Octets | list[bytes]:
        """Return the responses, if all have one size as rows; `positions` and `offsets` are those of the records.

        The first template is that of responses without a recall handle, the second that of those with one.
        """
        timing, keys = self.place.timing, self._values(UNIQ_KEY)
        handles = [] if timing is None else self._handles(timing.slots_ms, texts_of(keys), broker_name)
        header_format, offset_digits = templates[timing is not None].json_format, digits_of(offsets)
        if offset_digits is not None and isinstance(self._excess, int):
            columns = [hex_digits_of(positions), self._values("queue_id"), offset_digits, keys]
            columns += [] if timing is None else [rows_of(handles)]
            return response_rows(header_format, [*columns, self._values("opaque")])
        opaques = numbers_of(self._values("opaque")) - self._excess
        numbers = positions.tolist(), numbers_of(self._values("queue_id")).tolist(), offsets.tolist()
        values: list[Sequence[object]] = [*numbers, texts_of(keys)]
        values += [] if timing is None else [handles]
        headers = [header_format % some for some in zip(*values, opaques.tolist(), strict=True)]
        return [JSON_PREFIXES[len(header)] + header for header in headers]

    def _values(self, name: str) -> Octets:
        """Return the values of a gap of the shape."""
        return self._headers[:, self._shape.gaps[name]]

    def _handles(self, slots_ms: Sequence[int], keys: Sequence[bytes], broker_name: bytes) -> list[bytes]:
        """Return the handles by which the messages can be recalled, all of one length."""
        topic = self.real_topic.encode()
        return [handle_text(topic, broker_name, slot_ms, key) for slot_ms, key in zip(slots_ms, keys, strict=True)]


def _tags_codes(shape: HeaderShape, headers: Octets) -> Longs:
    gap = shape.gaps.get(TAGS)
    if gap is None:
        return np.full(len(headers), tag_code(find_last(shape.properties, _TAGS_NAME) or b""))
    return tags_codes(headers[:, gap])


def _heads(shape: HeaderShape, headers: Octets, place: Place, sys_flag: int, born_host: bytes) -> npt.NDArray[Any]:
    queue = place.queues[0]
    one = FIXED_IPV4_RAW.pack(
        0, queue.magic, 0, queue.queue_id, shape.flag, 0, 0, sys_flag, 0, born_host, 0, b"", shape.reconsume_times, 0, 0
    )
    heads = np.frombuffer(bytearray(one * len(headers)), RECORD_IPV4_DTYPE)
    heads["born_timestamp"] = numbers_of(headers[:, shape.gaps["born_timestamp"]])
    return heads


def _tails(shape: HeaderShape, headers: Octets, place: Place, suffix: bytes) -> list[bytes]:
    """Return what follows the body of each record up to its seal: topic, length of the properties, properties."""
    properties = shape.properties + suffix
    before = common_tail(place.queues[0], len(properties) + (len(place.added[0]) if place.added else 0))
    rows = repeated(before + properties, len(headers))
    begin = len(before)
    for source, target in shape.copies:
        rows[:, begin + target.start : begin + target.stop] = headers[:, source]
    tails = texts_of(rows)
    return list(map(add, tails, place.added)) if place.added else tails
