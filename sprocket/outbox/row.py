"""Rows of the outbox: a message as it lies in the table, and back."""

import json
import uuid
from typing import Any, Final, NamedTuple

from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message
from sprocket.common.clock import Clock, SystemClock

# `available_ms` of a row that the relay has given up; later than any time.
FAILED_MS: Final = 1 << 62
# With the topic it fits into an index of MySQL.
_MAX_KEY_CHARS: Final = 255
# What of a message is JSON in one column: as in `Message`, without defaults.
_ATTRIBUTES: Final = (
    "tags", "keys", "properties", "delay_level", "deliver_at_ms", "priority", "lite_topic", "flag", "wait_store_ok",
)  # fmt: skip
_DEFAULTS: Final = {name: getattr(Message("T", b"-"), name) for name in _ATTRIBUTES}


class OutboxRow(NamedTuple):
    """One row as the relay reads it; the fields are the columns.

    `unique_key` is the name of the message for brokers, which recognise a repetition by it.  Before `available_ms`
    no relay takes the row: it is leased, waits for the next attempt, or has failed.  `first_leased_ms` is 0 until a
    relay took it.
    """

    id: int
    topic: str
    ordering_key: str | None
    body: bytes
    attributes: str
    unique_key: str
    created_ms: int
    available_ms: int
    first_leased_ms: int
    attempts: int
    error: str


# Columns that a writer fills, in the order of the table.
WRITTEN: Final = OutboxRow._fields[1:]


def new_row(message: Message, key: str | None, clock: Clock | None) -> dict[str, Any]:
    """Return the columns of `message` by name.  A delay counts from now; without `clock` that is the system's time.

    Raises IllegalMessage for a key that is empty or too long, or that the message cannot have.
    """
    if key is not None:
        if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY_CHARS or "\x00" in key:
            raise IllegalMessage(f"key {key!r:.80}: pass a text of 1 to {_MAX_KEY_CHARS} characters, or None")
        if message.priority is not None or message.lite_topic:
            raise IllegalMessage("priority and lite_topic choose the queue; leave either them or the key out")
    now_ms = (clock or SystemClock()).wall_ms()
    given = {name: value for name in _ATTRIBUTES if (value := getattr(message, name)) != _DEFAULTS[name]}
    if message.delay_ms is not None:
        given["deliver_at_ms"] = now_ms + message.delay_ms
    values = (
        message.topic, key, bytes(message.body), json.dumps(given),
        message.unique_key or f"outbox-{uuid.uuid4().hex}",
        now_ms, 0, 0, 0, "",
    )  # fmt: skip
    return dict(zip(WRITTEN, values, strict=True))


def message_of(row: OutboxRow) -> Message:
    """Return the message of `row`.  Raises IllegalMessage if something else has written it."""
    try:
        given = json.loads(row.attributes)
        given["deliver_at"] = given.pop("deliver_at_ms", None)
        given["keys"] = given.get("keys", "").split()
        return Message(row.topic, row.body, unique_key=row.unique_key, **given)
    except (ValueError, TypeError, AttributeError) as error:
        raise IllegalMessage(f"row {row.id} is no message: {error}") from None
