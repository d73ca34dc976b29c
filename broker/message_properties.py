"""Properties of a message in their encoded form: name 0x01 value 0x02, one after the other.

A broker looks at one or two properties of a message and adds a few; parsing all of them costs four times
as much as finding one.  What changes properties parses them, what only looks does not.
Source: RocketMQ 5.3.3, `MessageDecoder.string2messageProperties`, `messageProperties2String`, `MessageConst`.
"""

from collections.abc import Mapping
from typing import Final

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
POP_CK: Final = "POP_CK"
INNER_NUM: Final = "INNER_NUM"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"


def parse(properties: str | None) -> dict[str, str]:
    """All properties; of two with one name the last one holds, and one without name or value is left out."""
    parsed = {}
    for item in (properties or "").split(VALUE_END):
        name, separator, value = item.partition(NAME_END)
        if separator and name and value:
            parsed[name] = value
    return parsed


def encode(properties: Mapping[str, str]) -> str:
    """The opposite of `parse`."""
    return "".join([f"{name}{NAME_END}{value}{VALUE_END}" for name, value in properties.items()])


def find(properties: bytes, name: bytes) -> bytes | None:
    """Value of the first property `name` in UTF-8; None if there is none.  `name` ends with 0x01."""
    start = properties.find(name)
    while start > 0 and properties[start - 1] != 2:
        # The name stands inside of another one, or in a value.
        start = properties.find(name, start + 1)
    if start < 0:
        return None
    start += len(name)
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]
