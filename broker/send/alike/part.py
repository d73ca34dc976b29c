"""Sends of one read whose headers have one shape, as columns."""

from collections.abc import Sequence
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from broker.send.alike.header_shape import HeaderShape
from broker.send.alike.places import Place
from broker.timer.recall_handle import handle_text
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.message.properties import TAGS, UNIQ_KEY, encoded_name, find_last
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from store.alike.columns import Longs, Octets, numbers_of, texts_of
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

        The opaques are those in `headers`, less `excess`.
        """
        self.place = place
        self.real_topic = shape.topic
        self.is_fifo = shape.is_fifo
        self._queue_ids = queue_ids.tolist()
        self._keys = texts_of(headers[:, shape.gaps[UNIQ_KEY]])
        self._opaques = (numbers_of(headers[:, shape.gaps["opaque"]]) - excess).tolist()
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
        return len(self._keys)

    def response_headers(
        self, templates: tuple[ResponseTemplate, ResponseTemplate], positions: Longs, offsets: Longs, broker_name: bytes
    ) -> list[bytes]:
        """Return the headers of the responses, without and with a recall handle by the first and second template.

        `positions` and `offsets` are where the records are in the log and in their queues.
        """
        columns: list[Sequence[object]] = [positions.tolist(), self._queue_ids, offsets.tolist(), self._keys]
        timing = self.place.timing
        if timing is not None:
            topic = self.real_topic.encode()
            slots_and_keys = zip(timing.slots_ms, self._keys, strict=True)
            columns.append([handle_text(topic, broker_name, slot_ms, key) for slot_ms, key in slots_and_keys])
        header_format = templates[timing is not None].json_format
        return [header_format % values for values in zip(*columns, self._opaques, strict=True)]


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
    one = np.frombuffer(before + properties, np.uint8)
    rows = np.empty((len(headers), len(one)), np.uint8)
    rows[:] = one
    begin = len(before)
    for source, target in shape.copies:
        rows[:, begin + target.start : begin + target.stop] = headers[:, source]
    tails = texts_of(rows)
    return list(map(add, tails, place.added)) if place.added else tails
