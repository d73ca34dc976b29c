"""Texts of popped messages: the handle of each message, and the queue information in a pop's response.

The handle is the property POP_CK and the header field extraInfo: ``first pop invisible revive retry broker queue
[offset]``, separated by blanks.  The three texts of an answer are entries ``retry queue value`` separated by ``;``.
`retry` says which topic a message was taken from: the topic itself, or one of the group's two retry topics.
Source: RocketMQ 5.3.3, `ExtraInfoUtil`, `KeyBuilder`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sprocket.common.errors import ProtocolError, RequestError
from sprocket.common.limits import MAX_HEADER_BYTES
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import RETRY_PREFIX

# What `retry` can be.
NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

# The revive queue id of messages that were popped in order: there is no checkpoint in the log for them.
ORDER_REVIVE_QUEUE: Final = 999

# Six numbers of at most 20 characters, a broker's name, and blanks.
MAX_HANDLE_CHARS: Final = 1024
# Numbers with fewer digits fit their types.
_LONG_DIGITS: Final = 19
_INT_DIGITS: Final = 10
_INT_LIMIT: Final = 1 << 31
_LONG_LIMIT: Final = 1 << 63


def retry_topic_v1(topic: str, group: str) -> str:
    """Return the topic of `topic`'s messages that `group` did not acknowledge, first kind."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    """Return the retry topic of the second kind: `+`, which no name may hold, separates group and topic."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def is_retry_v2(topic: str) -> bool:
    """Return whether `topic` is a retry topic of the second kind."""
    return topic.startswith(RETRY_PREFIX) and "+" in topic


def retry_kind(topic: str) -> str:
    """Return `NORMAL`, `RETRY_V1` or `RETRY_V2`, as the name `topic` tells."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, retry: str) -> str:
    """Return the topic in the store of a message that the application knows under `topic`.

    Raises `RequestError` for an unknown `retry`.
    """
    if retry == NORMAL:
        return topic
    if retry == RETRY_V1:
        return retry_topic_v1(topic, group)
    if retry == RETRY_V2:
        return retry_topic_v2(topic, group)
    raise RequestError(ResponseCode.SYSTEM_ERROR, f"retry kind {retry!r:.40} of a popped message is none of 0, 1, 2")


class PopHandle(NamedTuple):
    """Handle of one popped message, with which it is acknowledged or its invisible time is extended."""

    first_offset: int  # queue offset of the first message that its checkpoint covers
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry: str  # NORMAL, RETRY_V1 or RETRY_V2
    broker_name: str
    queue_id: int
    queue_offset: int | None = None  # of the message; None in the handle of a whole pop

    @property
    def is_ordered(self) -> bool:
        """Whether it was popped in order."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    def encode(self) -> str:
        """Return the text."""
        text = (
            f"{self.first_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_queue_id} {self.retry}"
            f" {self.broker_name} {self.queue_id}"
        )
        return text if self.queue_offset is None else f"{text} {self.queue_offset}"


def parse_handle(text: str) -> PopHandle:
    """Return the parts of a handle.  Raises `RequestError` that says which part is missing or wrong."""
    if len(text) > MAX_HANDLE_CHARS:
        raise _bad_handle(f"has {len(text)} characters; at most {MAX_HANDLE_CHARS} are taken")
    parts = text.split(" ")
    if len(parts) >= 8:
        # A usual handle has small numbers: one test for all of them.  A proxy's receipt has a part more.
        known = parts[:8]
        first, popped, invisible, revive, retry, broker, queue, offset = known
        if (
            f"{first}{popped}{invisible}{revive}{queue}{offset}".isdecimal()
            and "" not in known
            and len(first) < _LONG_DIGITS and len(popped) < _LONG_DIGITS and len(invisible) < _LONG_DIGITS
            and len(offset) < _LONG_DIGITS and len(revive) < _INT_DIGITS and len(queue) < _INT_DIGITS
        ):  # fmt: skip
            return PopHandle(
                int(first), int(popped), int(invisible), int(revive), retry, broker, int(queue), int(offset)
            )
    if len(parts) < 7:
        raise _bad_handle(f"has {len(parts)} parts instead of 7 or 8: {text!r:.200}")
    try:
        return PopHandle(
            _number(parts[0], _LONG_LIMIT),
            _number(parts[1], _LONG_LIMIT),
            _number(parts[2], _LONG_LIMIT),
            _number(parts[3], _INT_LIMIT),
            parts[4],
            parts[5],
            _number(parts[6], _INT_LIMIT),
            _number(parts[7], _LONG_LIMIT) if len(parts) > 7 and parts[7] else None,
        )
    except ValueError as error:
        raise _bad_handle(f"holds {error}: {text!r:.200}") from None


def _bad_handle(what: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"the handle of a popped message {what}")


def _number(text: str, limit: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal():
        raise ValueError(f"{text!r:.40} where a number belongs")
    number = int(text)
    if not -limit <= number < limit:
        raise ValueError(f"{text}, which is beyond {limit.bit_length()} bits")
    return number


def queue_key(retry: str, queue_id: int) -> str:
    """Return the key of a queue in what the parsers below return."""
    return f"{retry}@{queue_id}"


def message_key(retry: str, queue_id: int, queue_offset: int) -> str:
    """Return the key of one message in what `parse_order_counts` returns."""
    return f"{retry}@qo{queue_id}%{queue_offset}"


def start_offset_entry(retry: str, queue_id: int, start_offset: int) -> str:
    """One entry of startOffsetInfo: where the first message of a queue lies."""
    return f"{retry} {queue_id} {start_offset}"


def msg_offsets_entry(retry: str, queue_id: int, offsets: Iterable[int]) -> str:
    """One entry of msgOffsetInfo: which messages of a queue were taken."""
    return f"{retry} {queue_id} {','.join(map(str, offsets))}"


def queue_order_count_entry(retry: str, queue_id: int, count: int) -> str:
    """One entry of orderCountInfo: how often a queue's messages were consumed before."""
    return f"{retry} {queue_id} {count}"


def message_order_count_entry(retry: str, queue_id: int, queue_offset: int, count: int) -> str:
    """One entry of orderCountInfo: how often one message was consumed before."""
    return f"{retry} qo{queue_id}%{queue_offset} {count}"


def join_entries(entries: Sequence[str]) -> str:
    """Return entries as one text."""
    return ";".join(entries)


def parse_start_offsets(text: str | None) -> dict[str, int]:
    """Return start offsets by `queue_key`.  Raises `ProtocolError`."""
    return {key: _value(value, _LONG_LIMIT) for key, value in _entries("startOffsetInfo", text).items()}


def parse_msg_offsets(text: str | None) -> dict[str, list[int]]:
    """Return queue offsets of the messages by `queue_key`, in the response's order.  Raises `ProtocolError`."""
    return {
        key: [_value(offset, _LONG_LIMIT) for offset in value.split(",")]
        for key, value in _entries("msgOffsetInfo", text).items()
    }


def parse_order_counts(text: str | None) -> dict[str, int]:
    """Return counts by `queue_key` or `message_key`.  Raises `ProtocolError`."""
    return {key: _value(value, _INT_LIMIT) for key, value in _entries("orderCountInfo", text).items()}


def _entries(name: str, text: str | None) -> dict[str, str]:
    if not text:
        return {}
    if len(text) > MAX_HEADER_BYTES:
        raise ProtocolError("pop_info", f"{name} has {len(text)} characters")
    entries: dict[str, str] = {}
    for entry in text.rstrip(";").split(";"):
        parts = entry.split(" ")
        if len(parts) != 3:
            raise ProtocolError("pop_info", f"{name} has an entry of {len(parts)} parts instead of 3: {entry!r:.100}")
        key = f"{parts[0]}@{parts[1]}"
        if key in entries:
            raise ProtocolError("pop_info", f"{name} names {key:.60} twice")
        entries[key] = parts[2]
    return entries


def _value(text: str, limit: int) -> int:
    if len(text) < _INT_DIGITS and text.isdecimal():
        return int(text)
    try:
        return _number(text, limit)
    except ValueError as error:
        raise ProtocolError("pop_info", str(error)) from None
