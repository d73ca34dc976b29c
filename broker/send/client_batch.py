"""Parser of a client's batch, with its limits.

Each member is: total size, magic, body CRC, flag, body length (i32 each); the body; properties length i16, properties.
The broker adds the header's properties to those of each member, so a small request can cause a large write.
Therefore the number of members and the total size of their records are checked before any record is built.
Source: RocketMQ 5.3.3, `MessageDecoder.decodeMessage`, `MessageExtEncoder.encode(MessageExtBatch)`, which limit only
the body of the request.
"""

import struct
from typing import Final

from sprocket.common.limits import MAX_BATCH_GROWTH_BYTES, MAX_PROPERTIES_BYTES
from store.record.checksum import SEAL_BYTES
from store.record.record import FIXED_IPV4_BYTES

# (flag, start of the body, start of the properties, end); the properties length lies before the properties.
Member = tuple[int, int, int, int]

LENGTH_BYTES: Final = 2
_HEAD: Final = struct.Struct(">iiiii")
_MIN_MEMBER_BYTES: Final = _HEAD.size + LENGTH_BYTES
# Bytes of a record without body and properties: fixed fields, lengths of topic and properties, a separator, the CRC.
_RECORD_BYTES: Final = FIXED_IPV4_BYTES + 4 + 1 + SEAL_BYTES


class BadBatch(ValueError):
    """Error: the body is no batch, or exceeds a limit; the text states the reason and the limit."""


def members_of(content: bytes, max_members: int, *, check_sizes: bool = False) -> list[Member]:
    """Return the position of each member of a batch, at least one.  Raises BadBatch.

    With `check_sizes` the total size in each member's head must be its real size.
    """
    end, at = len(content), 0
    found: list[Member] = []
    unpack, append = _HEAD.unpack_from, found.append
    if not end:
        raise BadBatch("The batch is empty.")
    while at < end:
        if len(found) == max_members:
            raise BadBatch(f"The batch has more than {max_members} messages: send several batches.")
        if at + _MIN_MEMBER_BYTES > end:
            raise BadBatch("The batch ends within a message.")
        size, _, _, flag, body_bytes = unpack(content, at)
        body_at = at + _HEAD.size
        properties_at = body_at + body_bytes + LENGTH_BYTES
        if body_bytes < 0 or properties_at > end:
            raise BadBatch(f"A message of the batch has a body length of {body_bytes}.")
        properties_bytes = content[properties_at - 2] << 8 | content[properties_at - 1]
        stop = properties_at + properties_bytes
        if properties_bytes > MAX_PROPERTIES_BYTES or stop > end:
            raise BadBatch(f"A message of the batch has a properties length of {properties_bytes}.")
        if check_sizes and stop - at != size:
            raise BadBatch(f"A message of the batch states a size of {size} bytes, but has {stop - at}.")
        append((flag, body_at, properties_at, stop))
        at = stop
    return found


def check_growth(content: bytes, members: int, topic: str, common: bytes, max_message_bytes: int) -> None:
    """Raise BadBatch if the records of a batch would be too large together.

    `common` are the properties that are added to each of its `members`.  A request body has at most
    `max_message_bytes`.  Its records may have twice that size plus 64 KiB.
    """
    record_bytes = _RECORD_BYTES + len(topic.encode()) + len(common)
    total_bytes = len(content) + members * (record_bytes - _MIN_MEMBER_BYTES)
    allowed_bytes = 2 * max_message_bytes + MAX_BATCH_GROWTH_BYTES
    if total_bytes > allowed_bytes:
        raise BadBatch(
            f"The {members} messages of the batch would become {total_bytes} bytes, with {len(common)} bytes of "
            f"properties added to each; allowed are {allowed_bytes}: send several batches."
        )
