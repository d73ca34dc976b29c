"""One message: its fields, its body in bounds, its trace, and who consumed it.  Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dashboard.views.words import size
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.at_once import Outcomes
from sprocket.client.consume.message_back import DEAD_LETTER_REASON
from sprocket.client.errors import BodyUnreadable
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.trace.encoding import TraceKind
from sprocket.client.trace.lookup import Found
from sprocket.remoting.bodies.stats import OffsetWrapper
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.topic_names import DLQ_PREFIX, TRACE_TOPIC

MAX_TEXT_BYTES: Final = 8192
_MAX_HEX_BYTES: Final = 512
_MAX_PROPERTIES: Final = 100
_SNIPPET_CHARACTERS: Final = 80


@dataclass(frozen=True)
class Body:
    """A body as text: what of it is shown, in which form, and how large it is."""

    text: str
    form: str
    size_bytes: int
    is_cut: bool


@dataclass(frozen=True, kw_only=True)
class MessageRow:
    """One message of a list."""

    topic: str
    message_id: str
    offset_message_id: str
    tags: str
    keys: tuple[str, ...]
    stored_ms: int
    broker: str
    queue_id: int
    queue_offset: int
    retries: int
    origin: str
    reason: str
    snippet: str


@dataclass(frozen=True)
class Step:
    """One step of a message's life: when, after the first step, what happened, and details."""

    time_ms: int
    after: str
    what: str
    details: tuple[tuple[str, str], ...]
    state: str


# Part of a timeline, and place among steps of one millisecond, in the order of cause and effect.
_STORED, _DIED = (1, 0), (2, 2)
_RECORDED: Final = {
    TraceKind.PUB: (0, 0), TraceKind.END_TRANSACTION: (0, 1), TraceKind.SUB_BEFORE: (2, 0), TraceKind.SUB_AFTER: (2, 1),
    TraceKind.RECALL: (2, 0),
}  # fmt: skip
# `ConsumeReturnType` of RocketMQ.
_FAILURES: Final = {1: "a timeout", 2: "an exception", 3: "a result of null", 4: "a failure"}


class _Moment(NamedTuple):
    """One step before the times are put in order."""

    order: tuple[int, int]
    time_ms: int
    what: str
    details: tuple[tuple[str, str], ...]
    state: str


@dataclass(frozen=True)
class Consumer:
    """One group that consumes the topic, and whether it has passed the message."""

    group: str
    state: str
    lag: int
    dead_id: str = ""  # of the group's dead letter


@dataclass(frozen=True, kw_only=True)
class MessagePage:
    """One message."""

    row: MessageRow
    born_ms: int
    born_host: str
    store_host: str
    size_bytes: int
    properties: tuple[tuple[str, str], ...]
    body: Body
    steps: tuple[Step, ...]
    trace_problem: str
    consumers: tuple[Consumer, ...]
    dead_group: str  # whose dead letter it is, or empty


def body_of(message: ReceivedMessage) -> Body:
    """Return the body: UTF-8 as text, other bytes in hexadecimal; the first part of a large one."""
    try:
        raw = bytes(message.body)
    except BodyUnreadable as error:
        return Body(f"The body cannot be read: {error}", "damaged", len(message.stored_body), False)
    part = raw[:MAX_TEXT_BYTES]
    for shorter in range(4 if len(raw) > MAX_TEXT_BYTES else 1):
        try:
            text = part[: len(part) - shorter].decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return Body(text, "text", len(raw), len(raw) > MAX_TEXT_BYTES)
    return Body(hex_lines(raw[:_MAX_HEX_BYTES]), "bytes", len(raw), len(raw) > _MAX_HEX_BYTES)


def hex_lines(raw: bytes) -> str:
    """Return bytes as lines of offset, hexadecimal and ASCII."""
    return "\n".join(
        f"{at:06x}  {raw[at : at + 16].hex(' '):<47}  "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in raw[at : at + 16])
        for at in range(0, len(raw), 16)
    )


def message_row(message: ReceivedMessage) -> MessageRow:
    """Return a message for a list."""
    body = body_of(message)
    snippet = " ".join(body.text.split()) if body.form == "text" else f"{size(body.size_bytes)} of bytes"
    return MessageRow(
        topic=message.queue.topic,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        tags=message.tags,
        keys=tuple(message.keys[:20]),
        stored_ms=message.store_timestamp_ms,
        broker=message.queue.broker_name,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        retries=message.reconsume_times,
        origin=message.properties.get(names.RETRY_TOPIC, ""),
        reason=reason_of(message),
        snippet=snippet[:_SNIPPET_CHARACTERS] + ("…" if len(snippet) > _SNIPPET_CHARACTERS else ""),
    )


def reason_of(message: ReceivedMessage) -> str:
    """Return why a dead letter is one: what its consumer gave as reason, else how often it was rejected."""
    given = message.properties.get(DEAD_LETTER_REASON, "")
    times = message.reconsume_times
    return given or f"rejected {times} {'time' if times == 1 else 'times'}, without a reason"


def message_page(
    message: ReceivedMessage, traces: "list[Found] | AdminError",
    progress: Outcomes[str, dict[MessageQueue, OffsetWrapper]], dead: Mapping[str, ReceivedMessage],
) -> MessagePage:  # fmt: skip
    """Return the page of a message; `dead` are its dead letters, by group."""
    problem = ""
    found: list[Found] = []
    if isinstance(traces, AdminError):
        problem = f"The trace could not be read: {traces}"
    elif traces:
        found = traces
    else:
        problem = f"No trace: its clients record none, or {TRACE_TOPIC} is off (traceTopicEnable)."
    host, port = message.born_host
    store, store_port = message.store_host
    return MessagePage(
        row=message_row(message),
        born_ms=message.born_timestamp_ms,
        born_host=f"{host}:{port}",
        store_host=f"{store}:{store_port}",
        size_bytes=message.size_bytes,
        properties=tuple(sorted(message.properties.items()))[:_MAX_PROPERTIES],
        body=body_of(message),
        steps=timeline(message, found, dead),
        trace_problem=problem,
        consumers=tuple(_consumers(message, found, progress, dead)),
        dead_group=_dead_group(message),
    )


def timeline(message: ReceivedMessage, found: Iterable[Found], dead: Mapping[str, ReceivedMessage]) -> tuple[Step, ...]:
    """Return the steps of a message: what clients recorded, when the broker stored it, and where it ended.

    It was sent before it was stored, and stored before it was consumed, whatever the clocks of clients say; in each
    part the order is that of time.
    """
    at = ("broker", message.queue.broker_name)
    group = _dead_group(message)
    stored = _Moment(_STORED, message.store_timestamp_ms, "stored by the broker", (at,), "good")
    moments = [_died(message, group) if group else stored, *(_died(one, group) for group, one in dead.items())]
    for record, client in found:
        details = [("group", record.group), ("client", client)]
        if record.kind is not TraceKind.SUB_BEFORE:
            details.append(("took", f"{record.cost_ms} ms"))
        if record.retry_times:
            details.append(("retry", str(record.retry_times)))
        if record.transaction_state:
            details.append(("state", record.transaction_state))
        if not record.is_success and record.context_code in _FAILURES:
            details.append(("because of", _FAILURES[record.context_code]))
        what, state = _what(record.kind, record.is_success)
        moments.append(_Moment(_RECORDED[record.kind], record.time_ms, what, tuple(details), state))
    moments.sort(key=lambda one: (one.order[0], one.time_ms or 1 << 62, one.order[1]))
    begun_ms = moments[0].time_ms
    return tuple(
        Step(
            one.time_ms,
            f"{one.time_ms - begun_ms:+d} ms" if one.time_ms else "time unknown",
            one.what,
            one.details,
            one.state,
        )
        for one in moments
    )


def _died(message: ReceivedMessage, group: str) -> "_Moment":
    details = (("broker", message.queue.broker_name), ("reason", reason_of(message)))
    return _Moment(_DIED, message.store_timestamp_ms, f"became a dead letter of {group}", details, "failed")


def _dead_group(message: ReceivedMessage) -> str:
    topic = message.queue.topic
    return topic.removeprefix(DLQ_PREFIX) if topic.startswith(DLQ_PREFIX) else ""


def _what(kind: TraceKind, is_success: bool) -> tuple[str, str]:
    state = "good" if is_success else "failed"
    if kind is TraceKind.PUB:
        return ("sent by the producer" if is_success else "the producer's send failed"), state
    if kind is TraceKind.SUB_BEFORE:
        return "received by a consumer", "waits"
    if kind is TraceKind.SUB_AFTER:
        return ("acknowledged by the consumer" if is_success else "rejected by the consumer"), state
    if kind is TraceKind.RECALL:
        return ("recalled" if is_success else "the recall failed"), state
    return "the transaction ended", state


def _consumers(
    message: ReceivedMessage, found: Iterable[Found], progress: Outcomes[str, dict[MessageQueue, OffsetWrapper]],
    dead: Mapping[str, ReceivedMessage],
) -> Iterable[Consumer]:  # fmt: skip
    acknowledged = {record.group for record, _ in found if record.kind is TraceKind.SUB_AFTER and record.is_success}
    for group, letter in dead.items():
        yield Consumer(group, f"gave it up, it is a dead letter: {reason_of(letter)}", 0, letter.offset_message_id)
    for group, offsets in progress.items():
        if group in dead:
            continue
        if isinstance(offsets, AdminError):
            yield Consumer(group, f"unknown: {offsets}", 0)
            continue
        if group in acknowledged:
            yield Consumer(group, "has acknowledged it", 0)
            continue
        one = offsets.get(message.queue)
        if one is None or one.consumer_offset < 0:
            yield Consumer(group, "has no offset in this queue", 0)
        elif one.consumer_offset > message.queue_offset:
            yield Consumer(group, "has passed it: consumed, retried, or skipped by its subscription", 0)
        else:
            yield Consumer(group, "has not reached it", message.queue_offset - one.consumer_offset)
