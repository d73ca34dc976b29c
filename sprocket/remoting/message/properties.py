"""Properties of a message in encoded form: name 0x01 value 0x02, one after the other.

Parsing all properties costs four times as much as finding one.  So only code that changes properties parses them.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`, `messageProperties2String`, `MessageConst`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from sprocket.remoting.codec.java_text import java_text

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
# The same in encoded properties: as bytes, and as one byte's value.
NAME_END_BYTES: Final = NAME_END.encode()
NAME_END_OCTET: Final = ord(NAME_END)
VALUE_END_BYTES: Final = VALUE_END.encode()
VALUE_END_OCTET: Final = ord(VALUE_END)
# Names whose expressions are kept: SQL filters bring names of clients.
_MAX_PATTERNS: Final = 1024
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}".encode()

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"  # separated by spaces
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PRODUCER_GROUP: Final = "PGROUP"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
POP_CK: Final = "POP_CK"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
# Id under which a Sprocket broker stores a message once.  Not in RocketMQ.  Every send path already looks for INNER_,
# so that messages without an id cost nothing.
IDEMPOTENCE_ID: Final = "INNER_IDEMPOTENCE_ID"
# Queue offset that the first message of a batch must get; else a Sprocket broker stores nothing.  Not in RocketMQ.
EXPECTED_OFFSET: Final = "INNER_EXPECTED_OFFSET"
# An id of this form is a number in a stream: a broker stores a message only if its number is higher than the last one
# of the stream in the topic.
SEQUENCE_PREFIX: Final = "sequence:"
# Schedule and fire time of a message that a Sprocket broker sent on a schedule; only brokers set it.  Not in RocketMQ.
INNER_SCHEDULE: Final = "INNER_SCHEDULE"
# How the sharding key of a delayed message, or of one of a transaction, chooses its queue (`queue_choice.CHOICES`).
# While the message waits, a Sprocket broker adds the number of queues.  Not in RocketMQ.
INNER_SHARDING: Final = "INNER_SHARDING"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
SHARDING_KEY: Final = "__SHARDINGKEY"
# Since RocketMQ 5.4.
LITE_TOPIC: Final = "__LITE_TOPIC"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
# Properties of a request that expects a reply, and of the reply.
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"  # ms for which the requester waits
MSG_TYPE: Final = "MSG_TYPE"  # "reply", or absent
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
# Range of a queue's offsets, which RocketMQ's client adds to what it pulls.
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"

# Properties about transport, delay and state of a stored message, which a message made from it does not get.
NOT_CARRIED: Final = frozenset(
    {DELAY, WAIT, REAL_TOPIC, REAL_QUEUE_ID, RETRY_TOPIC, RECONSUME_TIME, MAX_RECONSUME_TIMES, TRANSACTION_PREPARED}
    | {POP_CK, INNER_NUM, INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, TIMER_DELIVER_MS}
    | {TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_OUT_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES}
    | {TIMER_DEL_UNIQKEY, "1ST_POP_TIME", "CONSUME_START_TIME", "__CRC32#", IDEMPOTENCE_ID, EXPECTED_OFFSET}
    | {INNER_SCHEDULE, INNER_SHARDING}
)
# Names that a user property must not have, because they change the meaning of the message.
RESERVED: Final = frozenset(
    {KEYS, TAGS, WAIT, DELAY, UNIQ_KEY, RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES}
    | {TRANSACTION_PREPARED, REAL_TOPIC, REAL_QUEUE_ID, PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET, "BUYER_ID"}
    | {"TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", MSG_REGION, TRACE_ON, "CONSUME_START_TIME"}
    | {IDEMPOTENCE_ID, INNER_NUM, INNER_BASE, "INSTANCE_ID", "__CRC32#", TRANSACTION_PREPARED_QUEUE_OFFSET}
    | {CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE, ARRIVE_TIME, PUSH_REPLY_TIME, PRIORITY, LITE_TOPIC}
    | {EXPECTED_OFFSET, INNER_SCHEDULE, INNER_SHARDING}
)


def parse(properties: str | None) -> dict[str, str]:
    """Return all properties with a name and a value; of several with the same name, the last.

    A message of a client's batch has several: brokers append the batch's properties to those of each message.
    """
    parsed: dict[str, str] = {}
    for item in (properties or "").split(VALUE_END):
        name, separator, value = item.partition(NAME_END)
        if separator and name and value:
            parsed[name] = value
    return parsed


def parse_for_copy(properties: bytes) -> dict[str, str]:
    """Return all properties of a stored message for a copy of it, with the message's own UNIQ_KEY.

    `parse` returns the UNIQ_KEY of the batch for each message of a client's batch.  RocketMQ's copies have that one:
    consumers that look for duplicates by id would handle one message of the batch and drop the others.
    """
    parsed = parse(java_text(properties))
    own = own_unique_key(properties)
    if own:
        parsed[UNIQ_KEY] = own
    return parsed


def encode(properties: Mapping[str, str]) -> str:
    """Return the encoded form of `properties`, the opposite of `parse`; each ends with 0x02."""
    return "".join([f"{name}{NAME_END}{value}{VALUE_END}" for name, value in properties.items()])


def encode_copy(properties: Mapping[str, str], original: bytes) -> bytes:
    """Return the encoded form of the properties of a copy of a message, which has the properties `original`.

    A property that is not UTF-8 keeps its bytes.  RocketMQ replaces them by U+FFFD.
    """
    encoded = encode(properties).encode()
    if _REPLACED not in encoded:
        return encoded
    kept = {java_text(item): item for item in original.split(VALUE_END_BYTES)}
    items = (f"{name}{NAME_END}{value}" for name, value in properties.items())
    return b"".join([kept.get(item, item.encode()) + VALUE_END_BYTES for item in items])


def sequence_id(stream: str, number: int) -> str:
    """Return the IDEMPOTENCE_ID of message `number` of a stream."""
    return f"{SEQUENCE_PREFIX}{stream}:{number}"


def sequence_of(id_: str) -> tuple[str, int] | None:
    """Return the stream and the number that an IDEMPOTENCE_ID states; None for an ordinary id."""
    if not id_.startswith(SEQUENCE_PREFIX):
        return None
    stream, _, number = id_.rpartition(":")
    return (stream, int(number)) if number.isascii() and number.isdecimal() and len(number) < 19 else None


def separators_in(text: str) -> bool:
    """Return whether `text` holds a character that would end a name or a value."""
    return NAME_END in text or VALUE_END in text


def encoded_name(name: str) -> bytes:
    """Return a property's name as `find` and `find_last` take it: UTF-8, then 0x01."""
    return (name + NAME_END).encode()


def find(properties: bytes, name: bytes) -> bytes | None:
    """Return the value of the first property `name`, UTF-8; None if there is none.  `name` ends with 0x01.

    This is what a message had before brokers appended to it; RocketMQ counts the last value, see `find_last`.
    """
    start = properties.find(name)
    while start > 0 and properties[start - 1] != VALUE_END_OCTET:
        # The name is part of another name, or of a value.
        start = properties.find(name, start + 1)
    if start < 0:
        return None
    start += len(name)
    end = properties.find(VALUE_END_BYTES, start)
    return properties[start:] if end < 0 else properties[start:end]


_UNIQUE_KEY: Final = encoded_name(UNIQ_KEY)


def own_unique_key(properties: bytes) -> str:
    """Return the UNIQ_KEY that a message had before a broker appended that of its batch; empty without one."""
    return java_text(find(properties, _UNIQUE_KEY) or b"")


def find_last(properties: bytes, name: bytes) -> bytes | None:
    """Return the last non-empty value of the property `name`, UTF-8, as in `parse`.  `name` ends with 0x01."""
    start = properties.rfind(name)
    if start < 0:
        return None
    end = properties.find(VALUE_END_BYTES, start)
    begin, end = start + len(name), len(properties) if end < 0 else end
    if begin < end and (not start or properties[start - 1] == VALUE_END_OCTET):
        return properties[begin:end]
    # One search of the rest, because a client may send thousands without a value.
    found = _all_with_value(name).findall(b"\x02%b" % properties[:end])
    return found[-1] if found else None


def terminated(properties: bytes) -> bytes:
    """Return `properties` so that others may follow: the last one ends with 0x02."""
    return properties + VALUE_END_BYTES if properties and properties[-1] != VALUE_END_OCTET else properties


def without(properties: bytes, name: bytes) -> bytes:
    """Return `properties` without all those of the name `name`, which ends with 0x01.

    Source: RocketMQ 5.3.3, `MessageUtils.deleteProperty`.
    """
    return _all_of(name).sub(b"", properties) if name in properties else properties


@lru_cache(_MAX_PATTERNS)
def _all_of(name: bytes) -> re.Pattern[bytes]:
    """Return what finds all properties of a name with their ends: a fixed begin is searched fast."""
    literal = re.escape(name)
    return re.compile(rb"%b(?<![^\x02]%b)[^\x02]*\x02?" % (literal, literal))


@lru_cache(_MAX_PATTERNS)
def _all_with_value(name: bytes) -> re.Pattern[bytes]:
    """Return what finds the values, not empty, of all properties of a name, in properties after a 0x02."""
    return re.compile(rb"\x02%b([^\x02]+)" % re.escape(name))
