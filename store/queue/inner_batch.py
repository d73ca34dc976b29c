"""Properties with the number of messages in a record, and their first queue offset.

Only records of topics with a Batch ConsumeQueue have them.
Source: RocketMQ 5.3.3, `MessageConst.PROPERTY_INNER_NUM`, `PROPERTY_INNER_BASE`, `BatchConsumeQueue.assignQueueOffset`,
`CommitLog.setBatchSizeIfNeeded`.
"""

from typing import Final

from sprocket.remoting.message.properties import (
    INNER_BASE,
    INNER_NUM,
    VALUE_END_BYTES,
    encoded_name,
    find_last,
    terminated,
    without,
)

_NUM: Final = encoded_name(INNER_NUM)
_BASE: Final = encoded_name(INNER_BASE)
_BOTH: Final = _NUM + b"%d" + VALUE_END_BYTES + _BASE + b"%d" + VALUE_END_BYTES
# A unit of the queue holds the number as a signed integer of 16 bits.
MAX_MESSAGES: Final = 32767
_MAX_DIGITS: Final = 5


def message_count(properties: bytes) -> int:
    """Return the number of messages in the record with these properties; 1 if it is missing or invalid."""
    text = find_last(properties, _NUM)
    if text is None or not text.isdigit() or len(text) > _MAX_DIGITS:
        return 1
    return min(max(1, int(text)), MAX_MESSAGES)


def placed_at(properties: bytes, base_offset: int, count: int) -> bytes:
    """Return `properties` with the number of the record's messages and the queue offset of the first.

    A record with one message has both properties too: without them RocketMQ would not put it into the queue.
    """
    return terminated(without(without(properties, _BASE), _NUM)) + _BOTH % (count, base_offset)
