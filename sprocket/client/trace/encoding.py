"""Records of traces, as RocketMQ's clients write and read them.

The body of a trace message is UTF-8: records end with 0x02, their fields are separated by 0x01.  The keys of the
message are the ids and keys of the messages that it is about.
Source: RocketMQ 5.3.3, `TraceDataEncoder`, `TraceConstants`, `MessageType`, `ConsumeReturnType`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

RECORD_END: Final = "\x02"
FIELD_END: Final = "\x01"
# `MixAll.DEFAULT_TRACE_REGION_ID`
DEFAULT_REGION: Final = "DefaultRegion"


class TraceKind(StrEnum):
    """What a record is about."""

    PUB = "Pub"  # a send
    SUB_BEFORE = "SubBefore"  # a consumer got the message
    SUB_AFTER = "SubAfter"  # it acknowledged or rejected it
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class MessageType(IntEnum):
    """Type of a sent message; the numbers are those of the encoding."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One record.  Which fields it has depends on its kind; the others keep their defaults."""

    kind: TraceKind
    message_id: str
    time_ms: int = 0  # wall clock of the client; 0 in a SubAfter of an old client
    group: str = ""
    region: str = DEFAULT_REGION
    topic: str = ""  # not in SubBefore and SubAfter
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    body_bytes: int = 0
    cost_ms: int = 0
    message_type: MessageType = MessageType.NORMAL
    offset_message_id: str = ""
    is_success: bool = True
    request_id: str = ""  # of SubBefore and its SubAfter
    retry_times: int = 0
    context_code: int = 0  # `ConsumeReturnType`: 0 success, 4 failed
    transaction_id: str = ""
    transaction_state: str = ""  # COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW
    is_from_check: bool = False


def encode(record: TraceRecord) -> str:
    """Return a record's text, with its end."""
    one = record
    fields: tuple[object, ...]
    if one.kind is TraceKind.PUB:
        fields = (
            one.time_ms, one.region, one.group, one.topic, one.message_id, one.tags, one.keys, one.store_host,
            one.body_bytes, one.cost_ms, int(one.message_type), one.offset_message_id, _text(one.is_success),
        )  # fmt: skip
    elif one.kind is TraceKind.SUB_BEFORE:
        fields = one.time_ms, one.region, one.group, one.request_id, one.message_id, one.retry_times, one.keys
    elif one.kind is TraceKind.SUB_AFTER:
        fields = (
            one.request_id, one.message_id, one.cost_ms, _text(one.is_success), one.keys, one.context_code,
            one.time_ms, one.group,
        )  # fmt: skip
    elif one.kind is TraceKind.END_TRANSACTION:
        fields = (
            one.time_ms, one.region, one.group, one.topic, one.message_id, one.tags, one.keys, one.store_host,
            int(MessageType.COMMIT), one.transaction_id, one.transaction_state, _text(one.is_from_check),
        )  # fmt: skip
    else:
        fields = one.time_ms, one.region, one.group, one.topic, one.message_id, _text(one.is_success)
    # A separator within a value would move the fields after it.
    values = (str(value).replace(FIELD_END, " ").replace(RECORD_END, " ") for value in fields)
    return FIELD_END.join((one.kind.value, *values)) + RECORD_END


def _text(value: bool) -> str:
    return "true" if value else "false"


def decode(body: str) -> Iterator[TraceRecord]:
    """Yield the records of a trace message's body; damaged and unknown ones are left out."""
    for text in body.split(RECORD_END):
        fields = text.split(FIELD_END)
        try:
            record = _decoded(fields)
        except (IndexError, ValueError):
            continue
        if record is not None:
            yield record


def _decoded(fields: list[str]) -> TraceRecord | None:
    kind = fields[0]
    if kind == TraceKind.PUB:
        # Clients before 4.2 write no offset message id; some later ones add their address.
        has_offset_id = len(fields) >= 14
        return TraceRecord(
            kind=TraceKind.PUB, time_ms=int(fields[1]), region=fields[2], group=fields[3], topic=fields[4],
            message_id=fields[5], tags=fields[6], keys=fields[7], store_host=fields[8], body_bytes=int(fields[9]),
            cost_ms=int(fields[10]), message_type=MessageType(int(fields[11])),
            offset_message_id=fields[12] if has_offset_id else "",
            is_success=fields[13 if has_offset_id else 12] == "true",
        )  # fmt: skip
    if kind == TraceKind.SUB_BEFORE:
        return TraceRecord(
            kind=TraceKind.SUB_BEFORE, time_ms=int(fields[1]), region=fields[2], group=fields[3],
            request_id=fields[4], message_id=fields[5], retry_times=int(fields[6]), keys=_at(fields, 7),
        )  # fmt: skip
    if kind == TraceKind.SUB_AFTER:
        return TraceRecord(
            kind=TraceKind.SUB_AFTER, request_id=fields[1], message_id=fields[2], cost_ms=int(fields[3]),
            is_success=fields[4] == "true", keys=_at(fields, 5), context_code=int(_at(fields, 6) or 0),
            time_ms=int(_at(fields, 7) or 0), group=_at(fields, 8),
        )  # fmt: skip
    if kind == TraceKind.END_TRANSACTION:
        return TraceRecord(
            kind=TraceKind.END_TRANSACTION, time_ms=int(fields[1]), region=fields[2], group=fields[3],
            topic=fields[4], message_id=fields[5], tags=fields[6], keys=fields[7], store_host=fields[8],
            message_type=MessageType(int(fields[9])), transaction_id=fields[10], transaction_state=fields[11],
            is_from_check=fields[12] == "true",
        )  # fmt: skip
    if kind == TraceKind.RECALL:
        return TraceRecord(
            kind=TraceKind.RECALL, time_ms=int(fields[1]), region=fields[2], group=fields[3], topic=fields[4],
            message_id=fields[5], is_success=fields[6] == "true",
        )  # fmt: skip
    return None


def _at(fields: list[str], index: int) -> str:
    return fields[index] if index < len(fields) else ""


def keys_of(record: TraceRecord) -> list[str]:
    """Return the keys under which the trace message of a record is found: the message's id and its keys."""
    return [record.message_id, *record.keys.split()]
