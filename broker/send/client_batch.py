"""The messages in the body of a client's batch, and what bounds them.

Each member is: total size, magic, body CRC, flag, body length (i32 each); the body; properties length i16, properties.
The broker adds the header's properties to those of each member, so a small request can ask for a large write: the
number of members and the size of what they become are checked before anything is made of them.
Source: RocketMQ 5.3.3, `MessageDecoder.decodeMessage`, `MessageExtEncoder.encode(MessageExtBatch)`; there only the
body of the request is bounded.
"""

import struct
from typing import Final

from sprocket.common.limits import MAX_BATCH_GROWTH_BYTES
from store.record.checksum import SEAL_BYTES
from store.record.record import FIXED_IPV4_BYTES

# (flag, start of the body, start of the properties, end); the properties length lies before the properties.
Member = tuple[int, int, int, int]

LENGTH_BYTES: Final = 2
_HEAD: Final = struct.Struct(">iiiii")
_MAX_PROPERTIES_BYTES: Final = 32767
_MIN_MEMBER_BYTES: Final = _HEAD.size + LENGTH_BYTES
# Of a record beside its body and properties: fixed fields, lengths of topic and properties, a separator, the CRC.
_RECORD_BYTES: Final = FIXED_IPV4_BYTES + 4 + 1 + SEAL_BYTES


class BadBatch(ValueError):
    """The body is no batch, or over a limit; the text says why and what is allowed."""


def members_of(content: bytes, max_members: int, *, check_sizes: bool = False) -> list[Member]:
    """Return where the members of a batch lie, at least one.  Raises BadBatch.

    `check_sizes` also compares the total size that each member claims.
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
        if properties_bytes > _MAX_PROPERTIES_BYTES or stop > end:
            raise BadBatch(f"A message of the batch has a properties length of {properties_bytes}.")
        if check_sizes and stop - at != size:
            raise BadBatch(f"A message of the batch says a size of {size}, and has {stop - at}.")
        append((flag, body_at, properties_at, stop))
        at = stop
    return found


def check_growth(content: bytes, members: int, topic: str, common: bytes, max_message_bytes: int) -> None:
    """Raise BadBatch if the records of a batch would be too large together.

    `common` are the properties that are added to each of its `members`.  The body of a request has at most
    `max_message_bytes`; its records may have twice as much and 64 KiB.
    """
    record_bytes = _RECORD_BYTES + len(topic.encode()) + len(common)
    total_bytes = len(content) + members * (record_bytes - _MIN_MEMBER_BYTES)
    allowed_bytes = 2 * max_message_bytes + MAX_BATCH_GROWTH_BYTES
    if total_bytes > allowed_bytes:
        raise BadBatch(
            f"The {members} messages of the batch would become {total_bytes} bytes, {len(common)} bytes of properties "
            f"each among them; allowed are {allowed_bytes}: send several batches."
        )
