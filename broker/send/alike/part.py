"""Sends of one read whose headers have one shape, as columns."""

from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from broker.send.alike.columns import Longs, Octets, common_text, numbers_of, texts_of
from broker.send.alike.header_shape import HeaderShape
from broker.send.alike.places import Place
from broker.timer.recall_handle import handle_text
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.message.properties import TAGS, UNIQ_KEY, encoded_name, find_last
from sprocket.remoting.message.record import CRC_MASK, FIXED_IPV4_RAW
from store.layout import RECORD_IPV4_DTYPE
from store.record.checksum import SEAL_BYTES, crc32

_LENGTH_BYTES: Final = 2  # of the field that holds the length of the properties
_TAGS_NAME: Final = encoded_name(TAGS)


class Part:
    """Sends with headers of one shape, in order: what they become in the log, and their responses."""

    def __init__(
        self,
        shape: HeaderShape,
        headers: Octets,
        queue_ids: Longs,
        bodies: Sequence[bytes],
        place: Place,
        suffix: bytes,
        sys_flag: int,
        born_host: bytes,
    ) -> None:
        """`headers` are one a row, `queue_ids` those in them; `suffix` are properties that all messages get."""
        self.place = place
        self.real_topic = shape.topic
        self.is_fifo = shape.is_fifo
        self._queue_ids = queue_ids.tolist()
        self._keys = texts_of(headers[:, shape.gaps[UNIQ_KEY]])
        self._opaques = numbers_of(headers[:, shape.gaps["opaque"]]).tolist()
        self.tags_codes = _tags_codes(shape, headers)
        self.tails = _tails(shape, headers, place, suffix)
        body_bytes = list(map(len, bodies))
        fixed_bytes = FIXED_IPV4_RAW.size + len(self.tails[0]) + SEAL_BYTES
        self.sizes: Longs = np.array(body_bytes) + fixed_bytes
        self.total_bytes = sum(body_bytes) + fixed_bytes * len(bodies)
        self.largest_bytes = max(body_bytes) + fixed_bytes
        # The fixed fields of the records, without those that depend on where they are stored.
        self.heads = _heads(shape, headers, place, sys_flag, born_host)
        if not place.added:
            self.heads["queue_id"] = queue_ids
        self.heads["total_size"], self.heads["body_length"] = self.sizes, body_bytes
        self.heads["body_crc"] = [crc & CRC_MASK for crc in map(crc32, bodies)]

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
    common = find_last(shape.properties, _TAGS_NAME) or b"" if gap is None else common_text(headers[:, gap])
    if gap is None or common is not None:
        return np.full(len(headers), _tag_code(common or b""))
    return np.array(list(map(_tag_code, texts_of(headers[:, gap]))))


@lru_cache(maxsize=1024)
def _tag_code(tag: bytes) -> int:
    return java_hash_code(tag.decode())


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
    topic_bytes, properties = place.queues[0].topic_bytes, shape.properties + suffix
    size = len(properties) + SEAL_BYTES + (len(place.added[0]) if place.added else 0)
    # A length of more than two bytes is that of a record over its limit, which is not stored.
    length = (size & 0xFFFF).to_bytes(_LENGTH_BYTES, "big")
    one = np.frombuffer(b"".join((topic_bytes, length, properties)), np.uint8)
    rows = np.empty((len(headers), len(one)), np.uint8)
    rows[:] = one
    begin = len(topic_bytes) + _LENGTH_BYTES
    for source, target in shape.copies:
        rows[:, begin + target.start : begin + target.stop] = headers[:, source]
    tails = texts_of(rows)
    return list(map(add, tails, place.added)) if place.added else tails
